"""What a node replies that lies or is broken: what of it reaches a client, and what becomes of the connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from gateway.router import connections as upstream
from gateway.router.connections import NodeAddress, NodeLost, Pool
from specpair.protocol.http_reply import MOST_OF_A_HEAD
from tests.gateway.router.stub_nodes import Got, Handler, Router, StubNode, fleet, routing
from tests.waiting import until

OK = b"HTTP/1.1 200 OK\r\n"
SHORT = OK + b"Content-Length: 2\r\n\r\n{}"
EVIL = OK + b"Content-Length: 4\r\n\r\nEVIL"
Writer = asyncio.StreamWriter


@asynccontextmanager
async def node(answer: Callable[[Writer], Awaitable[None]]) -> AsyncIterator[tuple[Pool, list[Writer]]]:
    """The connections to a node that answers each request so. With those that were made."""
    made: list[Writer] = []

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        made.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                await answer(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Pool(NodeAddress(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    try:
        yield pool, made
    finally:
        pool.abort("the test is over")
        server.close()
        await asyncio.gather(*(each.wait_closed() for each in made), return_exceptions=True)


async def asked(pool: Pool, most: int = 1000) -> bytes:
    async with pool.exchange(b"GET", b"/", []) as (_, connection):
        return await connection.read_all(most)


def sends(*pieces: bytes) -> Callable[[Writer], Awaitable[None]]:
    async def answer(writer: Writer) -> None:
        for each in pieces:
            writer.write(each)
            await writer.drain()

    return answer


@pytest.mark.parametrize(
    ("pieces", "connections"),
    [
        ([SHORT], 1),
        ([SHORT + EVIL], 3),
        ([SHORT + b"\x00"], 3),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"], 3),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + SHORT], 1),
    ],
)
def test_a_second_reply_reaches_nobody(pieces: list[bytes], connections: int) -> None:
    async def run() -> None:
        async with node(sends(*pieces)) as (pool, made):
            assert [await asked(pool) for _ in range(3)] == [b"{}"] * 3
            assert len(made) == connections

    asyncio.run(run())


def test_what_an_idle_connection_sends_reaches_nobody() -> None:
    async def run() -> None:
        async with node(sends(SHORT)) as (pool, made):
            assert await asked(pool) == b"{}"
            made[0].write(EVIL)
            await made[0].wait_closed()  # by the other end
            assert await asked(pool) == b"{}" and len(made) == 2

    asyncio.run(run())


def test_a_reply_before_the_request_is_none() -> None:
    async def run() -> None:
        async def early(reader: asyncio.StreamReader, writer: Writer) -> None:
            writer.write(EVIL)
            writer.close()

        server = await asyncio.start_server(early, "127.0.0.1", 0)
        loop, port = asyncio.get_running_loop(), server.sockets[0].getsockname()[1]
        _, made = await loop.create_connection(upstream.NodeConnection, "127.0.0.1", port)
        while not made.broken:
            await asyncio.sleep(0)
        with pytest.raises(NodeLost, match="nobody asked for"):
            await made.send(b"GET / HTTP/1.1\r\n\r\n")
        server.close()

    asyncio.run(run())


async def endless(writer: Writer, begin: bytes, block: bytes) -> None:
    writer.write(begin)
    while not writer.is_closing():
        writer.write(block)
        await writer.drain()


@pytest.mark.parametrize(
    ("begin", "block", "why"),
    [
        (OK + b"X: ", b"x" * 1000, f"more than {MOST_OF_A_HEAD} bytes"),
        (OK, b"X: 1\r\n", f"more than {MOST_OF_A_HEAD} bytes"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", f"more than {MOST_OF_A_HEAD} bytes"),
        (OK + b"\r\n", b"x" * 1000, "more than 1000 bytes"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", "more than 1000 bytes"),
    ],
    ids=["header", "headers", "interim replies", "body", "chunks"],
)
def test_an_endless_reply_is_given_up(begin: bytes, block: bytes, why: str) -> None:
    async def run() -> None:
        async with node(lambda writer: endless(writer, begin, block)) as (pool, _):
            with pytest.raises(NodeLost, match=why):
                await asked(pool)

    asyncio.run(run())


def test_the_rest_of_a_head_does_not_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "HEAD_SECONDS", 0.05)

    async def run() -> None:
        async with node(sends(OK + b"X: ")) as (pool, _):
            with pytest.raises(NodeLost, match=r"the head of the reply was not complete after 0.05 s"):
                await asked(pool)

    asyncio.run(run())


@pytest.fixture(scope="module")
def shared() -> Iterator[Router]:
    with fleet(1) as router:
        yield router


@pytest.fixture
def router(shared: Router) -> Router:
    shared.nodes[0].handler = None
    shared.nodes[0].got.clear()
    shared.until_seen("ready")
    return shared


def replies(status: int, body: Any = None, **headers: str) -> Handler:
    def handler(got: Got, request: Any) -> None:
        request.reply(status, body, **headers)

    return handler


def test_a_client_gets_no_header_that_is_of_the_router_or_of_one_connection(router: Router) -> None:
    dropped = {
        "Set-Cookie": "a=b",
        "Clear-Site-Data": '"*"',
        "Strict-Transport-Security": "max-age=1",
        "Alt-Svc": 'h3=":1"',
        "Access-Control-Allow-Origin": "*",
        "Connection": "keep-alive, ETag",
        "Keep-Alive": "timeout=9",
        "ETag": "1",
        "Location": "http://127.0.0.3/",
        "Refresh": "0",
        "Server": "node",
        "X-Request-Id": "node",
        "X-Powered-By": "node",
        "Proxy-Authenticate": "Basic",
    }
    kept = {"Retry-After": "3", "X-Session-Id": "s", "Cache-Control": "no-cache", "Allow": "GET"}
    router.nodes[0].handler = replies(200, {}, **{name.replace("-", "_"): dropped[name] for name in dropped}, **kept)
    got = router.http.post("/generate", json={}).headers
    assert not {*dropped} & {*got} - {"Server", "X-Request-Id"} and "node" not in got.values()
    assert {name: got[name] for name in kept} == kept
    assert got["content-type"] == "application/json" and got["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in got["content-security-policy"]


def test_a_redirect_is_not_followed_and_not_passed_on(router: Router) -> None:
    router.nodes[0].handler = replies(307, {}, Location="http://127.0.0.3/")
    reply = router.http.post("/generate", json={})
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "bad_gateway")
    assert "redirects (HTTP 307)" in reply.json()["error"]["message"] and "location" not in reply.headers


@pytest.mark.parametrize("path", ["/sessions", "/v1/models", "/usage"])
@pytest.mark.parametrize("body", [None, [], {}, {"sessions": 1, "data": 1, "keys": 1}, {"sessions": [1], "data": [1]}])
def test_a_list_that_is_none_is_left_out(router: Router, path: str, body: Any) -> None:
    router.nodes[0].handler = replies(200, body)
    reply = router.http.get(path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "bad_gateway")


@pytest.mark.parametrize("result", [1, {"error": 1}, {"error": {}}, {"error": {"code": 1}}])
def test_results_of_a_batch_that_are_none_are_an_error(router: Router, result: Any) -> None:
    router.nodes[0].handler = replies(200, {"results": [result]})
    reply = router.http.post("/verify/batch", json={"items": [{"session_id": "s", "draft_tokens": []}]})
    assert reply.status_code == 200 and reply.json()["results"][0]["error"]["code"] == "bad_gateway"


@pytest.mark.parametrize(
    "path",
    [
        "/health",
        "/nodes",
        "/v1/models",
        "/v1/models/toy",
        "/usage",
        "/sessions",
        "/models/toy/nodes",
        "/models/toy/model",
    ],
)
def test_head_is_get_without_a_body(router: Router, path: str) -> None:
    head, get = router.http.head(path), router.http.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"") == (200, b"")
    assert head.headers.keys() == get.headers.keys()
    assert not [each for each in router.nodes[0].asked if each.startswith("HEAD")]


def test_head_of_a_stream_ends_at_the_node_too(router: Router) -> None:
    left = []

    def stream(got: Got, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        request.wfile.flush()
        left.append(request.connection.recv(1))

    router.nodes[0].handler = stream
    reply = router.http.head("/sessions/s/stream")
    assert (reply.status_code, reply.content) == (200, b"")
    until(lambda: left == [b""], "the node's client has not left")


def test_names_with_slashes_are_found_at_the_router() -> None:
    nodes = [StubNode(name, f"{name}-1") for name in ("acme/tiny", "acme")]
    with routing(*nodes) as router:
        for path, at in (
            ("/models/acme/tiny/prefill", 0),
            ("/models/acme%2Ftiny/prefill", 0),
            ("/models/acme/prefill", 1),
        ):
            reply = router.http.post(path, json={}).json()
            assert reply == {"node": nodes[at].url, "path": "/prefill"}
        for written in ("acme/tiny", "acme%2Ftiny"):
            assert router.http.get(f"/models/{written}/health").json()["model"] == "acme/tiny"
            (listed,) = router.http.get(f"/models/{written}/nodes").json()["nodes"]
            assert listed["url"] == nodes[0].url
            assert router.http.get(f"/v1/models/{written}").json()["node"] == nodes[0].url
        refusal = router.http.post("/models/acme%2Fnone/v1/messages", json={}).json()
        assert refusal["type"] == "error" and "'acme/none'" in refusal["error"]["message"], "as Anthropic's API has it"
    for each in nodes:
        each.close()
