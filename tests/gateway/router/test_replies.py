"""What a node replies that lies, is broken or breaks off: what of it reaches a client, in the form of its API, and what
becomes of the connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.errors import ConnectionLost
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from gateway.router import connections as upstream
from gateway.router.connections import NodeLost, Pool
from gateway.router.messages import NodeSpec
from gateway.router.passing import WholeEvents
from specpair.protocol.http_reply import MOST_OF_A_HEAD
from tests.drafter_client.support import plain, read, serving
from tests.gateway.router.stub_nodes import Got, Handler, Link, Router, breaks, fleet, link, routing

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
    pool = Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
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
    kept["X-Specpair-Ignored"] = "verbosity"
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


PROMPT = "def f(x):"
TARGET = ScriptedBackend(Script(seed=1))
EVENTS = st.sampled_from([b'data: {"a":1}\n\n', b"event: x\ndata: y\n\n", b":\n\n", b'event: y\ndata: "event: "\n\n'])


@given(st.lists(EVENTS), st.lists(st.integers(1, 12)), st.binary(max_size=8).filter(lambda rest: b"\n" not in rest))
def test_only_whole_events_are_passed_on(events: list[bytes], cuts: list[int], rest: bytes) -> None:
    stream = b"".join(events)
    left, whole, sent = stream + rest, WholeEvents(), b""
    for cut in [*cuts, len(left)]:
        sent += whole.take(left[:cut])
        left = left[cut:]
        assert sent == b"" or sent.endswith(b"\n\n")
    assert sent == stream
    assert whole.named == sum(each.startswith(b"event: ") for each in events)
    assert whole.take(b"", last=True) == rest


def writes(*events: tuple[str, dict[str, Any]], then: bytes = b'data: {"half') -> Callable[..., None]:
    """A node's handler that writes these events, and breaks the connection in the middle of another one."""

    def handler(got: Got, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream; charset=utf-8")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        written = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events]
        for piece in (*(each.encode() for each in written), then):
            request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        request.wfile.flush()
        breaks(got, request)

    return handler


def test_openais_client_gets_an_error(router: Router) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "toy"}
    delta = {"choices": [{"index": 0, "delta": {"content": "ab"}, "finish_reason": None}]}
    router.nodes[0].handler = writes(("", chunk | delta), ("", chunk | delta))
    texts: list[str | None] = []
    with openai.OpenAI(base_url=f"{router.http.base_url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(model="toy", messages=[{"role": "user", "content": "x"}], stream=True)
        with pytest.raises(openai.APIError, match="the node that wrote this was lost") as raised:
            texts.extend(each.choices[0].delta.content for each in stream)
    assert texts == ["ab", "ab"]
    assert (raised.value.code, raised.value.type) == ("bad_gateway", "server_error")


def test_openais_client_gets_an_error_of_a_response(router: Router) -> None:
    part = {"item_id": "m", "output_index": 0, "content_index": 0, "delta": "ab", "logprobs": []}
    name = "response.output_text.delta"
    router.nodes[0].handler = writes(*((name, {"type": name, "sequence_number": n, **part}) for n in range(3)))
    with openai.OpenAI(base_url=f"{router.http.base_url}/v1", api_key="none", max_retries=0) as client:
        stream = client.responses.create(model="toy", input="x", stream=True)
        with pytest.raises(openai.APIError, match="the node that wrote this was lost") as raised:
            assert [each.type for each in stream]
    assert raised.value.code == "bad_gateway"
    with router.http.stream("POST", "/v1/responses", json={"stream": True}) as reply:
        *_, name, data = reply.read().decode().strip().splitlines()
    told = json.loads(data.removeprefix("data: "))
    assert (name, told["type"], told["sequence_number"], told["code"]) == ("event: error", "error", 3, "bad_gateway")


def test_anthropics_client_gets_an_error(router: Router) -> None:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ab"}}
    router.nodes[0].handler = writes(("content_block_delta", delta))
    url = str(router.http.base_url)
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        stream = client.messages.create(
            model="toy", max_tokens=9, messages=[{"role": "user", "content": "x"}], stream=True
        )
        with pytest.raises(anthropic.APIError, match="the node that wrote this was lost") as raised:
            assert [each.type for each in stream]
    body: Any = raised.value.body
    assert body["type"] == "error" and body["error"]["type"] == "api_error"


def test_a_verifiers_stream_ends_with_its_error(router: Router) -> None:
    router.nodes[0].handler = writes(("tokens", {"position": 4}))
    for method, path in (("POST", "/generate"), ("GET", "/sessions/abc/stream?from=4")):
        reply = router.http.request(method, path, headers={"X-Session-Id": "abc"})
        first, last, end = reply.text.split("\n\n")
        assert first == 'event: tokens\ndata: {"position": 4}' and end == ""
        assert last.startswith('event: error\ndata: {"error":{"code":"bad_gateway",')
    router.nodes[0].handler = writes()
    with closing(VerifierClient(str(router.http.base_url))) as client, pytest.raises(ConnectionLost, match="was lost"):
        [*client.generate(TextSession([1, 2]), {})]


@pytest.mark.parametrize("header", [("Content-Length", "100"), ("Content-Encoding", "gzip")])
def test_what_cannot_be_ended_well_breaks(router: Router, header: tuple[str, str]) -> None:
    def handler(got: Got, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header(*header)
        if header[0] != "Content-Length":
            request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"7\r\ndata: a\r\n")
        request.wfile.flush()
        breaks(got, request)

    router.nodes[0].handler = handler
    with pytest.raises(httpx.RemoteProtocolError), router.http.stream("POST", "/v1/completions", json={}) as reply:
        [*reply.iter_raw()]


@pytest.mark.parametrize("mode", [Mode.TARGET, Mode.REMOTE])
def test_the_drafter_goes_on_at_another_node(monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    monkeypatch.setattr("drafter_client.http.retries.CHECK_PAUSE", 0.01)
    options = Options(max_tokens=160, temperature=0.8, seed=3, mode=mode)
    with ExitStack() as stack:
        slow = [ScriptedBackend(Script(seed=1, seconds_per_pass=0.002)) for _ in range(2)]
        verifiers = [stack.enter_context(serving(each)) for each in slow]
        links: list[Link] = [stack.enter_context(link(each.url)) for each in verifiers]
        router = stack.enter_context(routing(specs=[NodeSpec(each.url) for each in links]))
        router.until_seen("ready", "ready")
        pair = stack.enter_context(Pair(str(router.http.base_url), DraftModel(Path("1"), "scripted")))
        text = pair.generate(PROMPT, options)

        def cut() -> None:
            (at,) = [number for number, each in enumerate(verifiers) if each.sessions]
            links[at].cut()

        assert read(text, 20, cut) == plain(TARGET, TARGET.vocabulary.encode(PROMPT), 160, options.sampling)
        assert len(text.stats.resumed) == 1
