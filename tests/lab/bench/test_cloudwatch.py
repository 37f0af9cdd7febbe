"""Figures that are put into CloudWatch."""

from dataclasses import replace
from typing import Any

import pytest

from lab.bench.analysis import analyse
from lab.bench.cloudwatch import metric_data, put
from lab.bench.errors import BadPush
from lab.bench.records import Results
from tests.lab.bench.runs import pair_and_target


def test_cloudwatch_gets_the_medians_by_variant_and_test_case() -> None:
    results = pair_and_target()
    data = metric_data(results)
    assert len(data) == 2 * 2 * 6
    found = {(*(each["Value"] for each in one["Dimensions"]), one["MetricName"]): one for one in data}
    tokens = found["pair", "counting", "OutputTokens"]
    assert (tokens["Value"], tokens["Unit"]) == (10, "Count")
    assert [each["Name"] for each in tokens["Dimensions"]] == ["Variant", "TestCase"]
    analysis = analyse(results)
    first = found["target", "counting", "TTFT"]
    assert first["Value"] == pytest.approx(analysis.summaries[0].distributions["ttft_ms"].p50 / 1000)
    assert (first["Unit"], first["Timestamp"].isoformat()) == ("Seconds", "2026-01-01T00:00:00+00:00")
    names = {"TTFT", "InterTokenLatency", "EndToEndLatency", "RequestOutputThroughput", "InputTokens", "OutputTokens"}
    assert {name for *_, name in found} == names


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def test_metrics_are_put_a_thousand_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed: requirements/cloudwatch.txt")
    results, puts = pair_and_target(), list[tuple[str, int]]()

    class Taking:
        def put_metric_data(self, Namespace: str, MetricData: list[Any]) -> None:  # noqa: N803
            puts.append((Namespace, len(MetricData)))

    monkeypatch.setattr(boto3, "client", lambda *_, **__: Taking())
    cases = tuple(replace(results.run.cases[0], name="counting") for _ in range(90))
    assert put(Results(replace(results.run, cases=cases), results.requests, []), "Test") == 1080
    assert puts == [("Test", 1000), ("Test", 80)]


@pytest.mark.usefixtures("credentials")
def test_a_missing_region_or_package_is_named() -> None:
    message = r"CloudWatch (needs boto3: .*cloudwatch|did not take the figures: You must specify a region)"
    with pytest.raises(BadPush, match=message):
        put(pair_and_target())
