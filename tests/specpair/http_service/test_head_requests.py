"""HEAD on both services: where GET works, with its headers and without its body; a stream ends at once."""

from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.openai_api.conftest import endpoints

STATE = ["/health", "/health/", "/live", "/ready", "/metrics", "/usage"]
MODELS = ["/v1/models", "/v1/models/scripted-2", "/v1/models/another"]
PAGES = ["/docs", "/docs/swagger-ui.css", "/openapi.json", "/nowhere"]


@pytest.fixture(scope="module", params=["target", "drafter"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with endpoints(request.param) as (url, _), httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        yield client


@pytest.mark.parametrize("path", [*STATE, *MODELS, *PAGES])
def test_head_is_get_without_a_body(http: httpx.Client, path: str) -> None:
    head, get = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert len(get.content) > 0 and head.headers.keys() == get.headers.keys()
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":  # it counts the requests
        assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_head_is_refused_where_there_is_no_get(http: httpx.Client, path: str) -> None:
    reply = http.head(path)
    assert (reply.status_code, reply.headers["allow"], reply.content) == (405, "POST", b"")


def test_the_connection_serves_the_next_request(http: httpx.Client) -> None:
    assert [http.head("/health").status_code, http.get("/health").json()["status"]] == [200, "ready"]


def test_a_stream_has_its_headers_alone() -> None:
    with endpoints("target") as (url, _), httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
        session = http.post("/prefill", json={"prompt": "def f(", "max_tokens": 400}).json()["session_id"]
        reply = http.head(f"/sessions/{session}/stream")
        assert (reply.status_code, reply.content) == (200, b"")
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert http.head("/verify").headers["allow"] == "POST"
        assert http.head("/model").status_code == 200 == http.head("/vocabulary").status_code
