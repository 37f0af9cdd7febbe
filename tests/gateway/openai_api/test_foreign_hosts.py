"""Foreign pages whose name resolves to this machine (DNS rebinding), at both ends: nothing answers to that name."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.scripted import ScriptedBackend
from tests.gateway.openai_api.conftest import endpoints, verifier
from verifier_server.app import create_app
from verifier_server.settings import Settings

EVIL = "evil.example:8000"
PAGE = {"Host": EVIL, "Origin": f"http://{EVIL}"}  # to the browser, the page and the service are of one origin
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}
PREFLIGHT = {"Access-Control-Request-Method": "POST"}
TEXT = {"prompt": "x", "max_tokens": 1}
READ = [
    *("/health", "/live", "/ready", "/metrics", "/usage", "/model", "/v1/models"),
    *("/docs", "/docs/", "/openapi.json", "/sessions", "/sessions/s/stream", "/no"),
]
ASKED: list[tuple[str, str, dict[str, str], Any]] = [
    *(("GET", path, {}, None) for path in READ),
    *(("POST", path, {}, TEXT) for path in ("/generate", "/verify", "/verify/", "/prefill", "/v1/completions")),
    ("DELETE", "/sessions/s", {}, None),
    ("OPTIONS", "/v1/completions", PREFLIGHT, None),
    ("GET", "/health", UPGRADE, None),
    ("GET", "/", {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}, None),
]


@pytest.fixture(scope="module", params=["target", "drafter"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with endpoints(request.param) as (url, _), httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
        yield http


@pytest.mark.parametrize(("method", "path", "headers", "body"), ASKED)
def test_a_foreign_name_gets_nothing(http: httpx.Client, method: str, path: str, headers: Any, body: Any) -> None:
    for host in (PAGE, {"Host": EVIL}):
        response = http.request(method, path, headers=headers | host, json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (403, "foreign_host")
        assert "'evil.example'" in error["message"] and "allowed_hosts" in error["message"].lower()


def statuses(http: httpx.Client, path: str) -> list[int]:
    return [http.get(path, headers={"Host": host}).status_code for host in ("localhost", "big.example:80", EVIL)]


def test_with_a_key_every_name_is_served() -> None:
    with verifier(settings={"api_key": "k"}) as live:
        assert statuses(live.http, "/health") == [200, 200, 200]
        assert statuses(live.http, "/sessions") == [401, 401, 401]


def test_an_upgrade_to_a_foreign_name_is_refused() -> None:
    """uvicorn hands it over so if a package for WebSocket is installed."""
    sent: list[Any] = []

    async def ask() -> None:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        app = create_app(Settings(backend="scripted"), ScriptedBackend())
        for host in (b"localhost", EVIL.encode()):
            scope = {"type": "websocket", "path": "/", "headers": [(b"host", host)], "query_string": b""}
            await app(scope, receive, send)

    asyncio.run(ask())
    assert [message["type"] for message in sent] == ["websocket.close", "websocket.close"], "there is no WebSocket here"
