"""Clients that disconnect while they wait: their requests are dropped, their sessions stay unchanged."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.verifier_server.conftest import SCRIPT, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import Gated, leave_behind, until

PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 10)


@pytest.mark.parametrize("path", ["/verify", "/verify/batch", "/prefill"])
def test_requests_of_disconnected_clients_are_dropped_and_can_be_sent_again(serve: Serve, path: str) -> None:
    backend = Gated()
    live = serve(backend)
    sessions = live.service.sessions
    prefill = {"session_id": "s", "prompt_ids": PROMPT_IDS}
    verify = {"session_id": "s", "position": 4, "draft_tokens": TEXT[1:3]}
    bodies: dict[str, dict[str, Any]] = {"/prefill": prefill, "/verify": verify, "/verify/batch": {"items": [verify]}}
    body = bodies[path]
    if path != "/prefill":
        live.post("/prefill", prefill)
    passes = backend.passes
    backend.close_gate()
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(live.post, "/prefill", {"session_id": "other", "prompt_ids": [256, 9]})
        assert backend.entered.wait(20)
        leave_behind(live, path, body, lambda: len(sessions) == 2 and sessions.get("s").lease.requests == 1)
        if path == "/prefill":
            until(lambda: len(sessions) == 1)  # no token was committed, so the session is removed
        else:
            until(lambda: sessions.get("s").lease.requests == 0)
        backend.gate.set()
        assert other.result(20)["tokens"] == plain(SCRIPT, [256, 9], 1)
    live.service.engine.check_integrity()
    assert backend.passes == passes + 1, "the other session's, and none for the disconnected client"
    reply = live.post(path, body)
    reply = reply["results"][0] if path == "/verify/batch" else reply
    assert reply["tokens"] == (TEXT[:1] if path == "/prefill" else TEXT[1:4])
