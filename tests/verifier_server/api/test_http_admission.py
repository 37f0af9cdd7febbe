"""Admission under a flood of prefills: other clients are served, and refusals say when to retry."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx

from backends.scripted import ScriptedBackend
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import Gated, until

OTHER = {
    "X-Forwarded-For": "10.9.8.7"
}  # uvicorn takes this as the client's address, since the connection comes from loopback
IDS = [256, 1, 2]
TEXT = plain(SCRIPT, IDS, 3)


def prefill(number: int) -> bytes:
    """A raw HTTP request that opens a new session."""
    body = json.dumps({"session_id": f"flood-{number}", "prompt_ids": IDS}).encode()
    return b"POST /prefill HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def statuses(connection: socket.socket, count: int) -> list[int]:
    """The statuses of the next `count` replies."""
    connection.settimeout(20)
    received, found = b"", list[bytes]()
    while len(found) < count:
        more = connection.recv(1 << 20)
        assert more, f"the connection was closed after {len(found)} of {count} replies"
        received += more
        found = re.findall(rb"HTTP/1.1 (\d+) ", received)
    return [int(status) for status in found]


def open_as(live: LiveServer, name: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return live.http.post("/prefill", json={"session_id": name, "prompt_ids": IDS}, headers=headers)


def test_other_clients_are_served_during_a_flood_of_prefills(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    assert open_as(live, "before", headers=OTHER).status_code == 200
    with socket.create_connection(live.address) as connection:
        for first in range(0, 1024, 16):  # as many as may come ahead of their replies
            connection.sendall(b"".join(map(prefill, range(first, first + 16))))
            assert statuses(connection, 16) == [200] * 16
    assert len(live.service.sessions) == 1024
    reply = open_as(live, "after", headers=OTHER)
    assert (reply.status_code, reply.json()["tokens"]) == (200, TEXT[:1])
    assert live.post("/verify", {"session_id": "after", "position": 4, "draft_tokens": TEXT[1:2]})["tokens"] == TEXT[1:]
    assert live.post("/verify", {"session_id": "before", "position": 3, "draft_tokens": []})["total_tokens"] == 4
    for number in range(2):
        gone = live.http.post("/verify", json={"session_id": f"flood-{number}", "draft_tokens": []})
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown_session")
    live.service.engine.check_integrity()


def test_refused_prefill_leaves_no_session(serve: Serve) -> None:
    backend = Gated()
    live = serve(backend, max_queue=4, max_sessions=280)
    backend.close_gate()
    sessions = live.service.sessions
    with ThreadPoolExecutor(1) as threads, ExitStack() as connections:
        first = threads.submit(open_as, live, "first")
        assert backend.entered.wait(20)
        flood = [connections.enter_context(socket.create_connection(live.address)) for _ in range(200)]
        for number, connection in enumerate(flood):
            connection.sendall(prefill(number))
        until(lambda: len(sessions) == 201)
        backend.gate.set()
        assert first.result(20).status_code == 200
        replies = [status for connection in flood for status in statuses(connection, 1)]
    assert replies.count(503) > 150
    assert replies.count(503) + replies.count(200) == 200
    assert len(sessions) == 1 + replies.count(200)
    assert open_as(live, "next", headers=OTHER).status_code == 200


def test_stream_and_batch_item_over_the_quota_are_refused(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), max_sessions_per_client=1)
    for name in "ab":
        live.post("/prefill", {"session_id": name, "prompt_ids": IDS})
    with live.client() as reader, reader.stream("GET", "/sessions/a/stream?from=3") as response:
        lines = response.iter_lines()
        assert next(lines) == "event: tokens"
        refused = live.http.get("/sessions/b/stream")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        items = [{"session_id": name, "position": 4, "draft_tokens": []} for name in "ab"]
        fine, other = live.post("/verify/batch", {"items": items})["results"]
        assert (fine["tokens"], other["error"]["code"]) == (TEXT[1:2], "overloaded")
