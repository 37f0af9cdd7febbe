"""Figures that are put into CloudWatch, which a stand-in plays."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lab.bench.analysis import analyse
from lab.bench.cloudwatch import metric_data, put
from lab.bench.errors import BadPush
from lab.bench.records import Results
from tests.lab.bench.runs import pair_and_target

Request = tuple[str, str, bytes]


@contextmanager
def stand_in(status: int = 200, reply: bytes = b"") -> Iterator[tuple[str, list[Request]]]:
    """A server that takes everything. Yields its address and what came: method, path, body."""
    came: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.command, self.path, body))
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", came
        finally:
            server.shutdown()
            thread.join()


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


@pytest.mark.usefixtures("credentials")
def test_metrics_are_put_over_http() -> None:
    pytest.importorskip("boto3", reason="boto3 is not installed: requirements/cloudwatch.txt")
    results = pair_and_target()
    many = Results(
        replace(results.run, cases=tuple(replace(results.run.cases[0], name="counting") for _ in range(90))),
        results.requests,
        [],
    )
    with stand_in() as (url, came):
        assert put(many, "Test", region="us-east-1", endpoint_url=url) == 1080
    assert len(came) == 2  # a call takes at most 1,000
    with stand_in(status=400) as (url, came), pytest.raises(BadPush, match="CloudWatch did not take the figures"):
        put(results, "Test", region="us-east-1", endpoint_url=url)


@pytest.mark.usefixtures("credentials")
def test_a_missing_region_or_package_is_named() -> None:
    message = r"CloudWatch (needs boto3: .*cloudwatch|did not take the figures: You must specify a region)"
    with pytest.raises(BadPush, match=message):
        put(pair_and_target())
