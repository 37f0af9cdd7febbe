"""What the router passes on, to which node, and what comes back."""

import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import SecretStr

from tests.gateway.router.stub_nodes import Got, Router, StubNode, breaks, fleet, refused, routing
from tests.waiting import until

SESSIONS = [f"{number:032x}" for number in range(24)]


@pytest.fixture(scope="module")
def shared() -> Iterator[Router]:
    with fleet(policy="jsq2") as router:
        yield router


@pytest.fixture
def router(shared: Router) -> Router:
    """Three nodes that know nothing yet."""
    for each in shared.nodes:
        each.got.clear()
        each.sessions.clear()
        each.status, each.health, each.handler = "ready", {}, None
    shared.until_seen("ready", "ready", "ready")
    return shared


def post(router: Router, path: str, session: str = "", body: Any = None, **headers: str) -> httpx.Response:
    named = {"X-Session-Id": session} if session else {}
    return router.http.post(path, json={} if body is None else body, headers={**named, **headers})


def home(router: Router, session: str) -> StubNode:
    """The node that has a session."""
    (found,) = [each for each in router.nodes if session in each.sessions]
    return found


def test_a_session_stays_at_its_node(router: Router) -> None:
    for session in SESSIONS:
        assert post(router, "/prefill", session).status_code == 200
    assert len({home(router, session).url for session in SESSIONS}) == 3
    for session in SESSIONS:
        assert post(router, "/verify", session).json()["node"] == home(router, session).url
        assert router.http.get(f"/sessions/{session}/stream").json()["node"] == home(router, session).url
    for each in router.nodes:
        each.got.clear()
    for session in SESSIONS:
        assert router.http.delete(f"/sessions/{session}", headers={"X-Session-Id": session}).status_code == 200
    assert sum(len(each.got) for each in router.nodes) == len(SESSIONS), "each was asked of its own node only"
    assert not any(each.sessions for each in router.nodes)


def test_a_router_that_was_started_again_finds_the_sessions(router: Router) -> None:
    for session in SESSIONS:
        post(router, "/prefill", session)
    for each in router.nodes:
        each.got.clear()
    with routing(*router.nodes) as another:
        for session in SESSIONS:
            assert post(another, "/verify", session).json()["node"] == home(router, session).url
            assert post(another, "/verify", session).json()["node"] == home(router, session).url
    asked = sum(len(each.got) for each in router.nodes)
    assert 2 * len(SESSIONS) <= asked <= 3 * len(SESSIONS), "a policy of two choices needs one more question at most"


def test_a_session_that_no_node_has_is_unknown(router: Router) -> None:
    reply = post(router, "/verify", SESSIONS[0])
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_session")
    assert [each.asked for each in router.nodes] == [["POST /verify"]] * 3


def test_a_session_id_in_the_body_is_found_too(router: Router) -> None:
    for session in SESSIONS[:6]:
        post(router, "/prefill", session)
        reply = post(router, "/verify", body={"draft_tokens": [], "session_id": session}).json()
        assert reply.get("node", "") in ("", home(router, session).url)
    assert sum(len(each.got) for each in router.nodes) == 12


def test_a_session_without_an_id_is_refused_because_it_could_be_anothers(router: Router) -> None:
    reply = post(router, "/verify", body={"draft_tokens": []})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "implicit_session_refused")


def test_the_id_that_a_node_has_made_is_remembered(router: Router) -> None:
    for each in router.nodes:

        def opens(got: Got, request: Any, node: StubNode = each) -> None:
            node.sessions.add("made-here")
            request.reply(200, {}, X_Session_Id="made-here")

        each.handler = opens
    assert post(router, "/prefill").headers["x-session-id"] == "made-here"
    for each in router.nodes:
        each.handler = None
        each.got.clear()
    post(router, "/verify", "made-here")
    assert sum(len(each.got) for each in router.nodes) == 1


def test_a_draining_node_keeps_its_sessions_and_gets_no_new_ones(router: Router) -> None:
    old, new = ([f"{when}-{each}" for each in SESSIONS] for when in ("old", "new"))
    for session in old:
        post(router, "/prefill", session)
    draining = router.nodes[0]
    kept = {*draining.sessions}
    assert kept
    draining.status = "draining"
    router.until_seen("draining", "ready", "ready")
    for session in new:
        post(router, "/prefill", session)
    assert draining.sessions == kept
    for session in kept:
        assert post(router, "/verify", session).json()["node"] == draining.url


def test_what_a_node_refuses_goes_to_the_next(router: Router) -> None:
    """Also before a look has found out."""
    refusing = router.nodes[:2]
    for code in ("shutting_down", "model_loading", "overloaded"):
        for each in refusing:
            each.handler = lambda got, request, code=code: refused(503, code)
        for session in SESSIONS[:8]:
            assert post(router, "/prefill", session).json()["node"] == router.nodes[2].url
        for session in SESSIONS[:8]:
            router.http.delete(f"/sessions/{session}", headers={"X-Session-Id": session})
    router.nodes[2].handler = refusing[0].handler
    reply = post(router, "/prefill", SESSIONS[0])
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "overloaded")


def test_an_overloaded_node_keeps_its_sessions(router: Router) -> None:
    post(router, "/prefill", SESSIONS[0])
    node = home(router, SESSIONS[0])
    node.handler = lambda got, request: refused(503, "overloaded")
    for each in router.nodes:
        each.got.clear()
    reply = post(router, "/verify", SESSIONS[0])
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "overloaded")
    assert [len(each.got) for each in router.nodes if each is not node] == [0, 0]


def test_a_request_to_a_node_that_breaks_is_sent_to_the_next(router: Router) -> None:
    for each in router.nodes[:2]:
        each.handler = breaks
    for session in SESSIONS[:8]:
        reply = post(router, "/generate", session, {"prompt": "x"})
        assert reply.json()["node"] == router.nodes[2].url
    asked = Counter(each.url for each in router.nodes for got in each.got if got.path == "/generate")
    assert asked[router.nodes[2].url] == 8 and sum(asked.values()) > 8
    router.nodes[2].handler = breaks
    reply = post(router, "/generate", SESSIONS[0], {"prompt": "x"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "bad_gateway")
    assert all(each.url in reply.json()["error"]["message"] for each in router.nodes)


def test_an_idle_connection_that_the_node_has_closed_is_replaced(router: Router) -> None:
    for session in SESSIONS[:3]:
        post(router, "/prefill", session)
    before = router.http.get("/stats").json()
    for each in router.nodes:
        for connection in [*each.connections]:
            connection.shutdown(socket.SHUT_RDWR)
    for session in SESSIONS[:3]:
        assert post(router, "/verify", session).status_code == 200
    after = router.http.get("/stats").json()
    assert after["repeated"] == before["repeated"]
    assert after["models"][0]["failures"] == before["models"][0]["failures"]


def test_what_a_node_gets(router: Router) -> None:
    sent = {
        "Authorization": "Bearer mine",
        "Origin": str(router.http.base_url),
        "X-Request-Id": "abc",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "1",
        "TE": "trailers",
        "X-Other": "kept",
    }
    reply = post(router, "/v1/completions?a=b%20c", body={"prompt": "é"}, **sent)
    (got,) = [got for each in router.nodes for got in each.got]
    assert got.path == "/v1/completions?a=b%20c" and got.json == {"prompt": "é"}
    assert got.headers["authorization"] == "Bearer mine" and got.headers["x-other"] == "kept"
    assert got.headers["x-forwarded-for"] == "127.0.0.1"
    assert got.headers["x-request-id"] == reply.headers["x-request-id"] == "abc"
    assert got.headers["host"] in {urlsplit(each.url).netloc for each in router.nodes}
    assert not {"x-hop", "te", "origin", "connection", "transfer-encoding"} & got.headers.keys()
    assert len(reply.headers.get_list("date")) == len(reply.headers.get_list("server")) == 1


def test_a_stream_is_passed_on_as_it_comes(router: Router) -> None:
    read = threading.Event()

    def streams(got: Got, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for number in range(3):
            event = f"data: {number}\n\n".encode()
            request.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            request.wfile.flush()
            assert read.wait(10)
            read.clear()
        request.wfile.write(b"0\r\n\r\n")

    for each in router.nodes:
        each.handler = streams
    with router.http.stream("POST", "/v1/completions", json={"stream": True}) as reply:
        found = []
        for piece in reply.iter_raw():
            found.append(piece)
            read.set()  # the node writes the next event only after this one was read
    assert found == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


def test_when_the_client_leaves_so_does_the_router(router: Router) -> None:
    begun, left = threading.Event(), threading.Event()

    def waits(got: Got, request: BaseHTTPRequestHandler) -> None:
        begun.set()
        request.connection.settimeout(10)
        assert request.connection.recv(1) == b""
        left.set()

    for each in router.nodes:
        each.handler = waits
    url = urlsplit(str(router.http.base_url))
    with socket.create_connection((url.hostname, url.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
        assert begun.wait(10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset: nobody reads
    assert left.wait(10)
    until(lambda: sum(each["in_flight"] for each in nodes(router)) == 0, "the request goes on")


def test_a_reply_that_breaks_in_the_middle_breaks_for_the_client(router: Router) -> None:
    def breaks_later(got: Got, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "100")
        request.end_headers()
        request.wfile.write(b"half")
        request.wfile.flush()
        breaks(got, request)

    for each in router.nodes:
        each.handler = breaks_later
    with pytest.raises(httpx.RemoteProtocolError):
        router.http.get("/v1/files")
    assert sum(len(each.got) for each in router.nodes) == 1, "what has begun is not repeated"


def nodes(router: Router) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = router.http.get("/nodes").json()["nodes"]
    return found


def test_a_batch_goes_to_the_node_of_its_sessions() -> None:
    with fleet(2, policy="round_robin") as router:
        for session in SESSIONS[:4]:
            post(router, "/prefill", session)
        first = router.nodes[0]
        items = [{"session_id": each, "draft_tokens": [1]} for each in (*sorted(first.sessions), "nobody")]
        *results, unknown = post(router, "/verify/batch", body={"items": items}).json()["results"]
        assert results == [{"node": first.url, "draft": [1]}] * 2
        assert unknown["error"]["code"] == "unknown_session"
        items = [{"session_id": each, "draft_tokens": []} for each in SESSIONS[:4]]
        refusal = post(router, "/verify/batch", body={"items": items})
        error = refusal.json()["error"]
        assert (refusal.status_code, error["param"]) == (422, "items") and "several nodes" in error["message"]


def test_lists_are_joined(router: Router) -> None:
    for session in SESSIONS[:6]:
        post(router, "/prefill", session)
    listed = router.http.get("/sessions").json()["sessions"]
    assert sorted(each["session_id"] for each in listed) == SESSIONS[:6]
    assert router.http.get("/v1/models").json() == {"object": "list", "data": [{"id": "toy"}]}
    assert router.http.get("/usage").json() == {"keys": [{"key": "laptop", "requests": 6, "generated_tokens": 30}]}


def test_the_nodes_key_replaces_the_callers() -> None:
    keys: dict[str, Any] = {"api_key": SecretStr("ours"), "node_key": SecretStr("theirs")}
    with fleet(2, **keys) as router:
        post(router, "/prefill", SESSIONS[0], **{"x-api-key": "ours"})
        (got,) = [got for each in router.nodes for got in each.got]
        assert got.headers["authorization"] == "Bearer theirs" and "x-api-key" not in got.headers
        assert "session_id" not in json.dumps(router.http.get("/sessions").json()), "an id gives access"
        assert router.http.get("/usage").status_code == 404
        for path in ("/nodes", "/stats", "/metrics", "/sessions", "/model"):
            refusal = router.http.get(path, headers={"Authorization": "Bearer theirs"})
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (401, "unauthorized")
        assert [router.http.get(path, headers={"Authorization": ""}).status_code for path in ("/live", "/ready")] == [
            200
        ] * 2


def test_metrics_that_are_open_need_no_key() -> None:
    with routing(api_key=SecretStr("ours"), metrics_open=True) as router:
        router.http.headers.pop("Authorization", None)
        assert [router.http.get(path).status_code for path in ("/metrics", "/nodes")] == [200, 401]
