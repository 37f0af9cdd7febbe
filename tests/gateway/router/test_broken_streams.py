"""A node is lost in the middle of a stream: the client is told in the form of its API, and the drafter goes on."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
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
from gateway.router.messages import NodeSpec
from gateway.router.passing import WholeEvents
from tests.drafter_client.support import plain, read, serving
from tests.gateway.router.links import Link, link
from tests.gateway.router.stub_nodes import Got, Router, breaks, fleet, routing

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


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    with fleet(1) as made:
        yield made


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
