"""What goes wrong with a request is told by its kind, however its bytes are cut; sides are what the flags say."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.client import EndpointClient, EventSplitter, Exchange, Reply, speculation_in
from lab.bench.errors import BadSide
from lab.bench.records import Side, Speculation
from lab.bench.sides import key_of, sides_of


def event(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def read(*chunks: Any) -> Reply:
    reply = Reply()
    for chunk in chunks:
        reply.take(chunk if isinstance(chunk, str) else json.dumps(chunk))
    return reply


ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(
    st.lists(st.dictionaries(st.text(), st.text(), max_size=2), max_size=5), st.lists(st.integers(0, 300)), ENDS, ENDS
)
def test_events_are_found_wherever_the_stream_is_cut(
    chunks: list[dict[str, str]], cuts: list[int], end: bytes, last: bytes
) -> None:
    """Lines end as EventSource reads them, and an event may have its data in several."""
    lines = [
        b"event: a\ndata:%s\n\n" % json.dumps(each, indent=1).replace("\n", "\ndata: ").encode() for each in chunks
    ]
    stream = b"".join([b": comment\n\nid: 1\n\n", *lines]).replace(b"\n", end) + b"data: [DONE]" + 2 * last
    places = [0, *sorted(min(each, len(stream)) for each in cuts), len(stream)]
    splitter = EventSplitter()
    found = [each for begin, end in pairwise(places) for each in splitter.feed(stream[begin:end])]
    assert [json.loads(each) for each in found[:-1]] == chunks
    assert found[-1] == "[DONE]"


def test_a_chunk_brings_text_if_it_has_any() -> None:
    reply = Reply()
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    assert not reply.take(json.dumps(role))
    for delta, text in (
        ({"content": "a"}, "a"),
        ({"reasoning_content": "b"}, "b"),
        ({"reasoning": "c", "content": None}, "c"),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, "f"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, "{}"),
    ):
        assert reply.take(json.dumps({"choices": [{"delta": delta}]}))
        assert reply.parts[-1] == text


@pytest.mark.parametrize(
    ("chunk", "told"),
    [
        (
            {
                "metrics": {
                    "speculative_decoding": {
                        "num_draft_tokens": 9,
                        "num_accepted_draft_tokens": 5,
                        "num_spec_steps": 3,
                    }
                }
            },
            Speculation(drafted=9, accepted=5, rounds=3),
        ),
        (
            {"spec_decode": {"num_drafts": 3, "num_draft_tokens": 9, "num_accepted_tokens": 5}},
            Speculation(drafted=9, accepted=5, rounds=3),
        ),
        ({"timings": {"predicted_n": 4, "draft_n": 9, "draft_n_accepted": 5}}, Speculation(drafted=9, accepted=5)),
        ({"timings": {"predicted_n": 4}}, None),
        ({"metrics": None}, None),
    ],
)
def test_speculation_is_read_in_each_shape(chunk: dict[str, Any], told: Speculation | None) -> None:
    assert speculation_in(chunk) == told


SIDE = Side(name="a", url="http://host/v1", api_key_variable="KEY")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret")


class Parts(httpx.AsyncByteStream):
    """The body of a reply: bytes, or an error that is raised there. Each takes a second of the clock."""

    def __init__(self, clock: "Clock", *parts: bytes | Exception) -> None:
        self._clock, self._parts = clock, parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            self._clock.now += 1
            if isinstance(part, Exception):
                raise part
            yield part


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def chunk(text: str, **others: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text, **others}]}).encode() + b"\n\n"


def ask(*parts: bytes | Exception, status: int = 200, error: Exception | None = None) -> Exchange:
    clock = Clock()

    def reply(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer secret"
        assert request.headers["accept-encoding"] == "identity"
        if error is not None:
            raise error
        return httpx.Response(status, stream=Parts(clock, *parts))

    async def asked() -> Exchange:
        client = EndpointClient(SIDE, timeout=9, clock=clock, transport=httpx.MockTransport(reply))
        try:
            return await client.ask("completions", {})
        finally:
            await client.close()

    return asyncio.run(asked())


def test_chunks_have_the_times_of_their_bytes() -> None:
    first = chunk("a")
    found = ask(first[:9], first[9:] + chunk("b"), chunk("", finish_reason="stop"), b"data: [DONE]\n\n")
    assert (found.started, found.chunks, found.ended) == (10.0, (2.0, 2.0), 4.0)
    assert (found.reply.text, found.reply.finish, found.failure) == ("ab", "stop", None)


@pytest.mark.parametrize(
    ("parts", "status", "error", "kind", "message"),
    [
        ([b'{"error": {"message": "too long"}}'], 400, None, "status", "too long"),
        ([b"<html>"], 502, None, "status", "<html>"),
        ([], 200, httpx.ConnectError("refused"), "unreachable", "no endpoint answers at http://host/v1: refused"),
        ([chunk("a"), httpx.ReadTimeout("")], 200, None, "timeout", "nothing came for 9 s"),
        ([chunk("a"), httpx.RemoteProtocolError("gone")], 200, None, "cut", "the connection broke: gone"),
        ([chunk("a")], 200, None, "cut", "the stream ended without a finish reason and without [DONE]"),
        ([b'data: {"error": {"message": "memory"}}\n\n'], 200, None, "error", "memory"),
        ([b'{"choices": [{"text": "whole"}]}'], 200, None, "protocol", "no server-sent events"),
        ([b"data: [1]\n\n"], 200, None, "protocol", "is no object of JSON"),
    ],
)
def test_a_failure_has_its_kind(
    parts: list[bytes | Exception], status: int, error: Exception | None, kind: str, message: str
) -> None:
    found = ask(*parts, status=status, error=error)
    assert found.failure is not None and found.failure.kind == kind
    assert message in found.failure.message
    assert found.failure.status == (status if kind == "status" else None)


def test_values_are_of_all_sides_or_of_one() -> None:
    first, second = sides_of(
        ["a=http://host:1/v1/", "b=host:2"],
        models=["m", "b=n"],
        keys=["b=KEY"],
        prices=["2.5", "b=0"],
        extras=['{"x": 1}', 'a={"y": "p=q"}'],
    )
    assert (first.url, second.url) == ("http://host:1/v1", "http://host:2/v1")
    assert (first.model, second.model) == ("m", "n")
    assert (key_of(first), key_of(second), second.api_key_variable) == (None, "secret", "KEY")
    assert (first.price_per_hour, second.price_per_hour) == (2.5, None)  # 0 is not known
    assert (first.extra, second.extra) == ({"y": "p=q"}, {"x": 1})
    assert "secret" not in repr(second)
    with pytest.raises(BadSide, match="--key: the variable KEY, for the key of b, is not set"):
        key_of(second, {})


def test_modes_are_sides() -> None:
    sides = sides_of([], ["http://host:1"], extras=['off={"x": 1}'])
    assert [each.name for each in sides] == ["off", "remote", "fused", "auto"]
    assert sides[0].extra == {"x": 1, "speculative": {"mode": "off"}}
    assert all(each.may_lack for each in sides)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"given": []}, "no side is named: give the address of an endpoint"),
        ({"given": ["http://host:1/v1"]}, "--side: 'http://host:1/v1' is no name with an address: write NAME=URL"),
        ({"given": ["a=ftp://host"]}, "'ftp://host' is not the address of an endpoint"),
        ({"given": ["a=http://me:pw@host/v1"]}, "name the variable of its key with --key"),
        ({"given": ["a=h", "a=i"]}, "--side: two sides are called a"),
        ({"given": ["pair=h"], "models": ["pare=m"]}, "--model: no side is called 'pare'; did you mean pair?"),
        ({"given": ["a=h"], "prices": ["cheap"]}, "--price: 'cheap' is no price of an hour"),
        ({"given": ["a=h"], "extras": ["{"]}, "--extra: '{' is no object of JSON"),
    ],
)
def test_a_bad_flag_is_named(given: dict[str, list[str]], message: str) -> None:
    with pytest.raises(BadSide) as caught:
        sides_of(**given)
    assert message in str(caught.value)
