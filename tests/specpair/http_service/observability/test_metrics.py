"""The metrics that both ends have: names, labels, and what each method counts."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from specpair.http_service.observability.metrics import ServiceMetrics


def value(metrics: ServiceMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"specpair_{name}", {"model_name": "m", **labels})


def test_requests_are_counted_by_route_and_status() -> None:
    metrics = ServiceMetrics(lambda: "m")
    metrics.request("/verify", 200, 0.002, "ada")
    metrics.request("/verify", 200, 0.004, "ada")
    metrics.request("/verify", 503, 0.1, "ada")
    assert value(metrics, "http_requests_total", route="/verify", status="200") == 2
    assert value(metrics, "http_requests_total", route="/verify", status="503") == 1
    assert value(metrics, "http_request_duration_seconds_count", route="/verify") == 3
    assert value(metrics, "http_request_duration_seconds_sum", route="/verify") == pytest.approx(0.106)


def test_keys_are_counted_apart_only_if_asked_for() -> None:
    apart = ServiceMetrics(lambda: "m", by_key=True)
    for key in ("ada", "bob"):
        apart.request("/verify", 200, 0.1, key)
        apart.text(key).tokens(3)
    assert value(apart, "http_requests_total", route="/verify", status="200", key="ada") == 1
    assert value(apart, "generation_tokens_total", key="bob") == 3
    together = ServiceMetrics(lambda: "m")
    together.text("ada").tokens(3)
    together.text("bob").tokens(4)
    assert value(together, "generation_tokens_total") == 7
    assert "ada" not in generate_latest(together.registry).decode()


@pytest.mark.parametrize("by_key", [False, True])
def test_accepted_tokens_are_counted_by_position(by_key: bool) -> None:
    metrics = ServiceMetrics(lambda: "m", by_key=by_key)
    text, key = metrics.text("ada"), {"key": "ada"} if by_key else {}
    for judged, accepted in ((4, 0), (4, 1), (4, 3), (2, 2)):
        text.draft(judged, accepted)
    assert value(metrics, "spec_decode_num_drafts_total", **key) == 4
    assert value(metrics, "spec_decode_num_draft_tokens_total", **key) == 14
    assert value(metrics, "spec_decode_num_accepted_tokens_total", **key) == 6
    by_position = [
        value(metrics, "spec_decode_num_accepted_tokens_per_pos_total", position=str(position), **key)
        for position in range(4)
    ]
    assert by_position == [3, 2, 1, None]


def test_a_text_has_a_first_token_gaps_and_an_end() -> None:
    metrics = ServiceMetrics(lambda: "m")
    text = metrics.text()
    text.began(7, 0)
    text.first_token(0.2)
    text.gap(0.01)
    text.gap(0.03)
    text.ended("length", 0.5)
    assert value(metrics, "prompt_tokens_total") == 7
    assert value(metrics, "time_to_first_token_seconds_sum") == 0.2
    assert value(metrics, "inter_token_latency_seconds_count") == 2
    assert value(metrics, "e2e_request_latency_seconds_sum") == 0.5
    assert value(metrics, "request_success_total", finished_reason="length") == 1


def test_a_model_that_is_loaded_later_gets_series_of_its_own() -> None:
    names = [""]
    metrics = ServiceMetrics(lambda: names[0], by_key=True)
    metrics.request("/health", 503, 0.1, "")
    metrics.text().tokens(1)
    assert '=""' not in generate_latest(metrics.registry).decode(), "to Prometheus, an empty label is a missing one"
    names[0] = "m"
    metrics.request("/health", 200, 0.1, "")
    assert value(metrics, "http_requests_total", route="/health", status="200", key="-") == 1
    assert value(metrics, "http_request_duration_seconds_count", route="/health") == 1


def test_two_applications_share_nothing_and_prometheus_can_read_both() -> None:
    one, other = ServiceMetrics(lambda: 'a "name"\n'), ServiceMetrics(lambda: "m")
    one.text().tokens(1)
    assert value(other, "generation_tokens_total") is None
    families = list(text_string_to_metric_families(generate_latest(one.registry).decode()))
    [tokens] = [each for each in families if each.name == "specpair_generation_tokens"]
    assert tokens.samples[0].labels == {"model_name": 'a "name"\n'}
