"""What goes wrong with a request is told by its kind."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from lab.bench.cases.case import Case, Prompt
from lab.bench.endpoint.client import EndpointClient, Exchange
from lab.bench.endpoint.requests import Abilities
from lab.bench.endpoint.side import Side
from lab.bench.errors import BadSide
from lab.bench.load.asking import Asker
from lab.bench.load.jobs import PreparedCase, jobs_of

SIDE = Side(name="a", url="http://host/v1", key="secret")


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


def test_a_side_that_is_gone_ends_the_load() -> None:
    case = Case(name="c", group="g", description="d", prompts=[Prompt(text="a")])
    jobs = jobs_of(case, [], [None])
    abilities = Abilities(model="m", apis=frozenset(), refusals={}, takes=frozenset(), cold={}, server={})

    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async def asked() -> None:
        client = EndpointClient(SIDE, timeout=9, transport=httpx.MockTransport(refused))
        asker = Asker(
            side=SIDE,
            client=client,
            abilities=abilities,
            prepared=PreparedCase(case=case, api="completions", jobs=jobs),
            repetition=0,
            stretch=0,
            seed=0,
            began=0.0,
            salt="",
            keeps_texts=True,
        )
        try:
            await asker.ask(jobs[0], 0.0, lambda request: pytest.fail("it was recorded"))
        finally:
            await client.close()

    with pytest.raises(BadSide, match="a is gone: no endpoint answers at"):
        asyncio.run(asked())
