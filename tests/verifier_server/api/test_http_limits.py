"""Who is served, and how much: access, admission, slow requests."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.scripted import ScriptedBackend
from specpair.http_service.connection import ConnectionLimits
from specpair.http_service.listening import configured
from tests.specpair.http_service.serving import limited, serving
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import bearer, keys_in
from verifier_server.app import create_app
from verifier_server.settings import Settings

# uvicorn takes this as the client's address, since the connection comes from loopback
OTHER = {"X-Forwarded-For": "10.9.8.7"}
IDS = [256, 1, 2]
TEXT = plain(SCRIPT, IDS, 3)
BODY: dict[str, Any] = {"session_id": "s", "prompt_ids": IDS}


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_health_without_the_key_reports_the_status_only(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), api_key="s3cret")
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        response = live.http.get("/health", headers=headers)
        assert (response.status_code, response.json()) == (200, {"status": "ready", "access": "unauthorized"})
    full = live.http.get("/health", headers={"Authorization": "Bearer s3cret"}).json()
    assert full.pop("identity")
    assert full == {
        "status": "ready",
        "model": "scripted-2",
        "sessions": 0,
        "texts": 0,
        "waiting": 0,
        "generated_tokens": 0,
        "pass_seconds": 0.0,
    }
    live.service.loader.failure = "cannot read /home/user/model.gguf"
    response = live.http.get("/health")
    failed = {"status": "failed", "access": "unauthorized", "reason": "its log says why"}
    assert (response.status_code, response.json()) == (503, failed)


def test_session_list_has_no_ids_without_a_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    live.post("/prefill", BODY)
    facts = {"prompt_len": 3, "total_tokens": 4, "finish_reason": None, "resident": True, "prompt_read": 3}
    for headers in ({}, OTHER):
        assert live.http.get("/sessions", headers=headers).json() == {"sessions": [facts]}


def test_session_of_another_key_is_unknown_to_every_endpoint(serve: Serve, tmp_path: Path) -> None:
    live = serve(ScriptedBackend(SCRIPT), keys_file=keys_in(tmp_path / "keys.toml", "mine", "theirs"))
    mine, theirs = bearer("mine"), bearer("theirs")
    opened = live.post("/prefill", BODY, headers=mine)
    nowhere = {"session_id": "nowhere", "draft_tokens": []}
    request = {"session_id": "s", "position": 4, "draft_tokens": []}

    def message(response: httpx.Response) -> str:
        assert code(response) == (404, "unknown_session")
        return str(response.json()["error"]["message"])

    unknown = message(live.http.post("/verify", json=nowhere, headers=theirs))
    assert message(live.http.post("/verify", json=request, headers=theirs)) == unknown.replace("nowhere", "s", 1)
    assert message(live.http.delete("/sessions/s", headers=theirs)) == unknown.replace("nowhere", "s", 1)
    assert message(live.http.get("/sessions/s/stream", headers=theirs)) == unknown.replace("nowhere", "s", 1)
    [refused] = live.post("/verify/batch", {"items": [request]}, headers=theirs)["results"]
    assert refused["error"]["code"] == "unknown_session"
    message(live.http.post("/verify", json={"draft_tokens": []}, headers=theirs))
    assert live.http.get("/sessions", headers=theirs).json() == {"sessions": []}

    texts = {"prompt_ids": [256, 1, 2], "max_tokens": 2, "session_id": "s"}
    assert live.post("/generate", texts, headers=theirs)["prompt_tokens"] == 3, (
        "no conflict with the other key's session"
    )
    assert live.http.delete("/sessions/s", headers=theirs).status_code == 200
    other = {"session_id": "s", "prompt_ids": [256, 9, 9, 9]}
    assert live.post("/prefill", other, headers=theirs)["prompt_len"] == 4, (
        "no conflict reveals the other key's session"
    )
    assert live.http.delete("/sessions/s", headers=theirs).status_code == 200
    [listed] = live.http.get("/sessions", headers=mine).json()["sessions"]
    assert (listed["session_id"], listed["total_tokens"]) == ("s", 4)
    assert live.post("/prefill", BODY, headers=mine) | {"timing": 0} == opened | {"timing": 0}
    assert live.post("/verify", request, headers=mine)["total_tokens"] == 5


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


HEAD = b"POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def all_received(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    connection.settimeout(20)
    parts = list(iter(lambda: connection.recv(65536), b""))
    return b"".join(parts)


@pytest.mark.parametrize("sent", [b"", b"{", b'{"draft_tokens"'])
@pytest.mark.parametrize("length", [b"Content-Length: 100\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_incomplete_body_times_out(serve: Serve, sent: bytes, length: bytes) -> None:
    live = serve(body_timeout=0.05)
    with socket.create_connection(live.address) as connection:
        chunked = b"%x\r\n%s\r\n" % (len(sent), sent) if sent and length.startswith(b"T") else sent
        connection.sendall(HEAD + length + chunked)
        head, _, body = all_received(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    error = json.loads(body)["error"]
    assert (error["code"], error["type"]) == ("request_timeout", "invalid_request_error")
    assert f"({len(sent)} bytes had come): send it in 0.05 s, or at 32 KiB a second" in error["message"]
    assert live.http.get("/health").status_code == 200


@pytest.mark.parametrize("sent", [b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_incomplete_head_times_out(sent: bytes) -> None:
    app = create_app(Settings(backend="scripted"), ScriptedBackend(SCRIPT))
    config = configured(app, limited(ConnectionLimits(head_seconds=0.25)))
    with serving(config) as address, socket.create_connection(address) as connection:
        connection.sendall(sent)
        head, _, body = all_received(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 Request Timeout")
        assert json.loads(body)["error"]["code"] == "request_timeout"
