"""A client that leaves while its prompt is read: no further pass is run for it, and its place is free."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from gateway.router.messages import NodeSpec
from specpair.engines.backend import Entry, Logits
from specpair.http_service import connection
from specpair.http_service.replies import hang_up
from tests.gateway.openai_api.conftest import CHATML, served
from tests.gateway.router.stub_nodes import routing
from tests.verifier_server.conftest import LiveServer, settings
from tests.waiting import until

LONG = "abcdefgh" * 40  # read in several passes
MESSAGES = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 4}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": [LONG, LONG[1:]], "max_tokens": 4},
    "/v1/chat/completions": MESSAGES,
    "/v1/responses": {"input": LONG, "max_output_tokens": 4},
    "/v1/messages": MESSAGES,
}
OWN: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": LONG, "max_tokens": 4},
    "/prefill": {"prompt": LONG, "max_tokens": 4},
}


class Held(ScriptedBackend):
    """A target whose passes wait while `free` is not set; each sets `entered` first."""

    def __init__(self) -> None:
        super().__init__(Script(seed=2, support=128), slots=4, context_length=512, max_batch_tokens=128)
        self.chat_template = CHATML
        self.free, self.entered = threading.Event(), threading.Event()
        self.free.set()

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.entered.set()
        assert self.free.wait(20)
        return super()._forward(batch)


@contextmanager
def serving(kind: str, target: Held) -> Iterator[tuple[str, LiveServer, Callable[[], bool]]]:
    """The address of a service, its verifier, and whether the one place for texts is free."""
    fused = {"draft_backend": "scripted", "draft_model": "1"} if kind == "fused" else {}
    draft = ScriptedBackend(Script(seed=2, support=128), slots=4, context_length=512) if fused else None
    with ExitStack() as stack:
        live = LiveServer(settings(**fused), target, draft=draft)
        stack.callback(live.close)
        live.wait_until_ready()
        url, free = live.url, lambda: True
        if kind in ("drafter", "router"):
            pair = Pair(live.url, DraftModel(Path("2"), "scripted"), texts=1)
            url = address = stack.enter_context(served(create_app(pair, Options(), texts=1, queue=1)))
            queue = f"{address}/health"
            free = lambda: "overloaded" not in httpx.get(queue, trust_env=False).json()  # noqa: E731
            if kind == "router":
                url = str(stack.enter_context(routing(specs=[NodeSpec(address)])).http.base_url)
        yield url, live, free


def leave(url: str, path: str, body: dict[str, Any], arrived: threading.Event) -> None:
    """Send a request, and hang up once its first pass has begun."""
    content, address = json.dumps(body).encode(), httpx.URL(url)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    )
    with socket.create_connection((address.host, address.port or 80)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + content)
        assert arrived.wait(20), "no pass has begun"


@pytest.mark.parametrize("kind", ["target", "fused", "drafter", "router"])
def test_a_client_that_leaves_costs_no_further_pass_and_no_place(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBES", (0.02, 0.02))
    monkeypatch.setattr(hang_up, "PATIENCE", 0.02)
    target = Held()
    with serving(kind, target) as (url, live, free):
        asked = [(path, body | {"stream": stream}) for path, body in BODIES.items() for stream in (True, False)]
        if url == live.url:
            asked += [("/generate", OWN["/generate"] | {"stream": True}), *OWN.items()]
        for path, body in asked:
            engine, passes = live.service.engine, target.passes
            target.free.clear()
            target.entered.clear()
            leave(url, path, body, target.entered)
            until(lambda: len(live.service.sessions) == 0, f"{path}: the verifier keeps the session")
            until(free, f"{path}: the place is taken")
            target.free.set()
            engine.check_integrity()  # between two passes
            engine.check_integrity()
            assert target.passes == passes + 1, f"{path} {body}: the reading of the prompt went on"
        again = httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 1}, trust_env=False, timeout=20)
        assert again.status_code == 200, again.text
