"""The drafter's metrics after texts of each mode, compared with the statistics of these texts."""

from contextvars import copy_context

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import Custom, Lookup, Mode, Options, Outage, Pair
from drafter_client.serve.metrics import DrafterMetrics
from specpair.http_service.observability.logs import RequestContext, enter
from specpair.http_service.observability.metrics import ServiceMetrics
from tests.drafter_client.support import running, toy_drafter
from verifier_server.settings import Settings

SOURCE = Custom(lambda vocabulary, sampling: toy_drafter(sampling=sampling))


def value(metrics: ServiceMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"specpair_{name}", {"model_name": "m", **labels})


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.FUSED, Mode.TARGET])
def test_texts_are_counted_as_in_their_statistics(mode: Mode) -> None:
    metrics = ServiceMetrics(lambda: "m")
    drafter = DrafterMetrics(metrics)
    settings = Settings(backend="scripted", draft_backend="ngram")
    with (
        running(settings, ScriptedBackend(Script(seed=1))) as verifier,
        Pair(verifier.url, SOURCE, observer=drafter, on_outage=drafter.outage) as pair,
    ):
        generation = pair.generate(
            "def f(x): def f(x): def f(", Options(max_tokens=40, mode=mode, lockstep=mode is Mode.REMOTE)
        )
        next(generation)
        assert value(metrics, "num_requests_running") == 1
        for _ in generation:
            pass
        stats = generation.stats
    assert value(metrics, "num_requests_running") == 0
    assert value(metrics, "generation_tokens_total") == stats.generated_tokens == 40
    assert value(metrics, "prompt_tokens_total") == stats.prompt_tokens
    assert value(metrics, "spec_decode_num_draft_tokens_total") == stats.drafted
    assert value(metrics, "spec_decode_num_accepted_tokens_total") == stats.accepted
    assert value(metrics, "time_to_first_token_seconds_sum") == pytest.approx(stats.ttft)
    assert value(metrics, "e2e_request_latency_seconds_sum") == pytest.approx(stats.total_time)
    assert value(metrics, "request_success_total", finished_reason="length") == 1
    assert value(metrics, "mode_selections_total", mode=mode) == 1
    if mode is Mode.REMOTE:
        assert value(metrics, "round_trip_seconds_count") == stats.drafts_sent
        assert stats.drafted > stats.accepted > 0


def test_outages_are_counted() -> None:
    metrics = ServiceMetrics(lambda: "m")
    drafter = DrafterMetrics(metrics)
    drafter.outage(Outage(2.5, 300.0, "nothing answers"))
    assert value(metrics, "outage_seconds") == 2.5
    drafter.resumed()
    drafter.outage(Outage(3.0, 300.0, "nothing answers", over=True))
    assert value(metrics, "outage_seconds") == 0 and value(metrics, "outages_total") == 1


def test_text_counts_for_the_key_of_its_request() -> None:
    metrics = ServiceMetrics(lambda: "m", by_key=True)

    def write() -> None:
        enter(RequestContext("r", key="ada"))
        with (
            running(Settings(backend="scripted"), ScriptedBackend(Script(seed=1))) as verifier,
            Pair(verifier.url, Lookup(), observer=DrafterMetrics(metrics)) as pair,
        ):
            list(pair.generate("x", Options(max_tokens=3)))

    copy_context().run(write)
    assert value(metrics, "generation_tokens_total", key="ada") == 3
