"""`GET /sessions/{id}/stream`: committed tokens as server-sent events for any number of readers."""

import socket
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from specpair.speculation.acceptance.token_sources import TokenDetails, split
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import read_events, until
from verifier_server.api import streams

PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 60)


@pytest.fixture
def live(serve: Serve) -> LiveServer:
    live = serve(ScriptedBackend(SCRIPT))
    live.post("/prefill", {"session_id": "s", "prompt_ids": PROMPT_IDS, "max_tokens": 20})
    return live


def verify(live: LiveServer, position: int, drafts: list[int]) -> Any:
    return live.post("/verify", {"session_id": "s", "position": position, "draft_tokens": drafts})


def test_stream_sends_every_commit_until_the_end(live: LiveServer) -> None:
    with live.client() as client, client.stream("GET", "/sessions/s/stream") as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-cache", "no")
        assert "content-length" not in response.headers
        stream = read_events(response)
        assert next(stream) == ("tokens", {"position": 3, "tokens": TEXT[:1], "sources": "b", "own": False}), (
            "the tokens committed before"
        )
        verify(live, 4, TEXT[1:4])
        assert next(stream) == ("tokens", {"position": 4, "tokens": TEXT[1:5], "sources": "aaab", "own": False})
        verify(live, 8, [0])
        assert next(stream) == ("tokens", {"position": 8, "tokens": TEXT[5:6], "sources": "r", "own": False})
        verify(live, 9, TEXT[6:40])
        assert next(stream) == (
            "tokens",
            {"position": 9, "tokens": TEXT[6:20], "sources": "a" * 13 + "b", "own": False},
        )
        assert list(stream) == [("end", {"total_tokens": 23, "finish_reason": "length"})], "then the stream is closed"


EVENTS = {"Accept": "text/event-stream"}
OPENING = {"session_id": "t", "prompt_ids": PROMPT_IDS, "max_tokens": 20}


def test_stream_follows_the_reply_to_the_prefill_that_asks_for_it(live: LiveServer) -> None:
    opening = OPENING | {"self_continue": True}
    with live.client() as client, client.stream("POST", "/prefill", json=opening, headers=EVENTS) as response:
        assert response.headers["x-session-id"] == "t"
        stream = read_events(response)
        name, opened = next(stream)
        assert (name, opened["tokens"], opened["total_tokens"]) == ("open", TEXT[:1], 4)
        *news, (last, end) = stream  # nothing else is asked for
    assert [token for _, told in news for token in told["tokens"]] == TEXT[1:20]
    assert (last, end) == ("end", {"total_tokens": 23, "finish_reason": "length"})


@pytest.mark.parametrize(
    ("path", "status", "code", "more"),
    [
        ("s/stream?from=2", 422, "position_inside_prompt", {"total_tokens": 4}),
        ("s/stream?from=5", 409, "position_beyond_committed", {"total_tokens": 4}),
        ("s/stream?from=-1", 422, "invalid_request", {"param": "from"}),
        ("s/stream?from=x", 422, "invalid_request", {"param": "from"}),
        ("s/stream?from=", 422, "invalid_request", {"param": "from"}),
        ("s/stream?from=%C2%B2", 422, "invalid_request", {"param": "from"}),
        ("s/stream?from=" + "9" * 5000, 422, "invalid_request", {"param": "from"}),
        ("missing/stream", 404, "unknown_session", {}),
    ],
)
def test_error_of_a_stream_request_is_a_json_reply(
    live: LiveServer, path: str, status: int, code: str, more: dict[str, Any]
) -> None:
    response = live.http.get(f"/sessions/{path}")
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert {key: error[key] for key in more} == more


@pytest.mark.parametrize("slash", ["", "/"])
def test_stream_of_a_deleted_session_ends_with_an_error(live: LiveServer, slash: str) -> None:
    with live.client() as client, client.stream("GET", f"/sessions/s/stream{slash}") as response:
        stream = read_events(response)
        assert next(stream)[0] == "tokens"
        live.http.delete("/sessions/s")
        ((name, body),) = stream
    assert (name, body["error"]["code"]) == ("error", "unknown_session")


def test_silent_stream_sends_comments(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.01)
    with live.client() as client, client.stream("GET", "/sessions/s/stream?from=4") as response:
        stream = read_events(response)
        assert [next(stream) for _ in range(3)] == [(":", None)] * 3
        verify(live, 4, [])
        while (found := next(stream)) == (":", None):
            pass
        assert found[1]["tokens"] == TEXT[1:2]


def test_slow_reader_blocks_nothing_and_gets_merged_events(serve: Serve) -> None:
    """The engine does not wait for the reader. Tokens committed meanwhile arrive in one event."""
    commits, width = 60, 200_000  # 24 MB on the wire: more than sockets hold
    live = serve(ScriptedBackend(SCRIPT, context_length=commits * width + 10))
    live.post("/prefill", {"session_id": "s", "prompt_ids": PROMPT_IDS})
    session = live.service.sessions.get("s")
    with socket.create_connection(live.address) as connection:
        connection.sendall(b"GET /sessions/s/stream?from=4 HTTP/1.0\r\n\r\n")
        until(lambda: len(session.watchers) == 1)
        for _ in range(commits):
            session.commit([7] * width, TokenDetails(split("b") * width))
            for watcher in session.watchers:
                watcher()
            live.service.engine_client.deliver()
            assert live.http.get("/health").json()["status"] == "ready"
        session.finish_reason = "stop"
        received = bytearray()
        while b"event: end" not in received[-1000:]:
            received += connection.recv(1_000_000)
    assert received.count(b"7") >= commits * width
    assert received.count(b"event: tokens") < commits / 2


def test_target_decoded_tokens_have_their_own_events(serve: Serve) -> None:
    """One event for each run of tokens from the same kind of step, even if they are read_events at once."""
    live = serve(ScriptedBackend(SCRIPT))
    live.post("/prefill", {"session_id": "s", "prompt_ids": PROMPT_IDS})
    session = live.service.sessions.get("s")
    session.commit(TEXT[1:4], TokenDetails(split("t") * 3))
    session.commit(TEXT[4:6], TokenDetails(split("t") * 2))
    session.commit(TEXT[6:8], TokenDetails(split("ab")))
    session.commit(TEXT[8:9], TokenDetails(split("t")))
    for start, expected in (
        (3, [(3, 1, False), (4, 5, True), (9, 2, False), (11, 1, True)]),
        (6, [(6, 3, True), (9, 2, False), (11, 1, True)]),
        (9, [(9, 2, False), (11, 1, True)]),
        (11, [(11, 1, True)]),
    ):
        with live.client() as client, client.stream("GET", f"/sessions/s/stream?from={start}") as response:
            stream = read_events(response)
            found = [next(stream)[1] for _ in expected]
        assert [(event["position"], len(event["tokens"]), event["own"]) for event in found] == expected
