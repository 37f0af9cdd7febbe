"""Requests are given an id, counted by route, and logged without what only the client may know; metrics of texts."""

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from specpair.http_service.observability import logs
from specpair.http_service.observability.logs import HEADER, note_key, note_session, request_id
from specpair.http_service.observability.metrics import ServiceMetrics
from specpair.http_service.observability.requests import OTHER, ObservedRequests, Routes

ROUTES = Routes(
    [
        *("/verify", "/verify/batch", "/sessions", "/sessions/{session_id}", "/sessions/{session_id}/stream"),
        "/v1/models/{model:path}",
    ]
)
_log = logging.getLogger("tests")


@given(st.binary(max_size=200))
def test_request_id_is_the_client_s_if_it_is_sane(sent: bytes) -> None:
    sane = 0 < len(sent) <= 128 and all(0x21 <= byte <= 0x7E for byte in sent)
    found = request_id([(b"host", b"x"), (HEADER, sent)])
    assert (found == sent.decode("latin-1")) == sane
    assert found.isascii() and found.isprintable() and 0 < len(found) <= 128


async def session(request: Request) -> Response:
    note_key("ada")
    note_session(request.path_params["session_id"])
    _log.warning("within")
    return PlainTextResponse("x")


async def fails(_request: Request) -> Response:
    raise RuntimeError("a bug")


def exchange(
    method: str, path: str, caplog: pytest.LogCaptureFixture, *, access_log: bool = True, **options: Any
) -> tuple[httpx.Response, ServiceMetrics, list[dict[str, Any]]]:
    """The reply to a request, the metrics, and the log as JSON."""
    metrics = ServiceMetrics(lambda: "m", by_key=True)
    app = Starlette(
        routes=[Route("/sessions/{session_id}", session), Route("/fails", fails), Route("/health", session)]
    )
    seconds = iter((1.0, 1.25))
    observed = ObservedRequests(app, metrics.request, ROUTES, access_log, lambda: next(seconds))
    formatter, written = logs.JsonFormatter(), list[dict[str, Any]]()

    class Written(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(json.loads(formatter.format(record)))

    handler = Written()

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(observed, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            return await http.request(method, path, **options)

    caplog.set_level(logging.INFO)
    logging.getLogger().addHandler(handler)
    try:
        return asyncio.run(ask()), metrics, written
    finally:
        logging.getLogger().removeHandler(handler)


def test_request_is_logged_with_its_ids_and_without_its_query(caplog: pytest.LogCaptureFixture) -> None:
    reply, metrics, log = exchange("GET", "/sessions/s-1?secret=1", caplog, headers={"X-Request-Id": "mine"})
    assert reply.headers["x-request-id"] == "mine"
    log = [record for record in log if record["logger"] in ("tests", "specpair.access")]
    assert [record["request_id"] for record in log] == ["mine"] * 2
    assert [record["session_id"] for record in log] == ["s-1"] * 2
    access = log[1]
    assert (access["method"], access["path"], access["status"], access["ms"]) == ("GET", "/sessions/s-1", 200, 250.0)
    assert access["key"] == "ada" and "secret" not in json.dumps(log)
    labels = {"model_name": "m", "route": "/sessions/{session_id}", "status": "200", "key": "ada"}
    assert metrics.registry.get_sample_value("specpair_http_requests_total", labels) == 1


def test_request_that_fails_counts_as_500(caplog: pytest.LogCaptureFixture) -> None:
    reply, metrics, log = exchange("GET", "/fails", caplog)
    assert reply.status_code == 500
    labels = {"model_name": "m", "route": OTHER, "status": "500", "key": "-"}
    assert metrics.registry.get_sample_value("specpair_http_requests_total", labels) == 1
    assert [record["status"] for record in log if record["logger"] == "specpair.access"] == [500]


@pytest.mark.parametrize(("path", "access_log"), [("/sessions/a", False), ("/verify", True)])
def test_access_lines_are_for_who_wants_them(path: str, access_log: bool, caplog: pytest.LogCaptureFixture) -> None:
    _, _, log = exchange("GET", path, caplog, access_log=access_log)
    assert [record["logger"] for record in log if record["logger"] == "specpair.access"] == [
        "specpair.access"
    ] * access_log


def test_path_of_an_access_line_is_bounded_and_printable(caplog: pytest.LogCaptureFixture) -> None:
    _, _, log = exchange("GET", "/a%1b[2J%0a" + "x" * 5000, caplog)
    [access] = [record for record in log if record["logger"] == "specpair.access"]
    assert access["path"].startswith("/a\\x1b[2J\\nxxx") and len(access["path"]) < 250


def test_text_lines_name_the_session_of_a_record() -> None:
    record = logging.makeLogRecord({"msg": "%d of %d", "args": (1, 2), "levelname": "ERROR", **logs.of_session("s-1")})
    assert logs.PlainFormatter().format(record) == "ERROR:    1 of 2 [session s-1]"


def value(metrics: ServiceMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"specpair_{name}", {"model_name": "m", **labels})


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
