"""Replies: work ends when its client hangs up, HEAD is GET without a body, and a feed has few readers."""

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.listening import bind_sockets, configured, shown_address
from specpair.http_service.replies import hang_up
from specpair.http_service.replies.events import MOST_READERS, MOST_WAITING, EventFeed, FeedReader, event_bytes
from specpair.http_service.replies.hang_up import HangUp, unless_hung_up
from specpair.protocol.errors import Overloaded
from tests.gateway.openai_api.conftest import endpoints


def test_an_event_is_one_line_also_to_clients_that_end_lines_at_other_characters() -> None:
    text = "a\x85b\u2028c\u2029d\x0b\x0c\x1c\x1d\x1e\né"
    sent = event_bytes(to_json({"text": text}), "told").decode()
    assert len(sent.splitlines()) == 3 and "é" in sent
    assert json.loads(sent.splitlines()[1].removeprefix("data: ")) == {"text": text}


class Connection:
    """A connection with a body in two parts, which is closed when the test says so."""

    def __init__(self) -> None:
        self.closed, self.listened = asyncio.Event(), asyncio.Event()
        self.parts = [b"a", b"b"]
        self.given_up = False

    async def receive(self) -> dict[str, Any]:
        if self.parts:
            return {"type": "http.request", "body": self.parts.pop(0), "more_body": bool(self.parts)}
        self.listened.set()
        try:
            await self.closed.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return {"type": "http.disconnect"}

    async def body(self, request: Request) -> bytes:
        found = b""
        while (message := await request.receive())["more_body"]:
            found += message["body"]
        return found + bytes(message["body"])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_up, "PATIENCE", 0.001)


def test_an_endpoint_gets_the_whole_body_and_is_cancelled_when_its_client_hangs_up() -> None:
    async def scenario() -> None:
        connection, ended = Connection(), list[str]()

        async def endpoint(request: Request) -> Response:
            assert await connection.body(request) == b"ab"
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("given back")
            raise AssertionError("it waits for ever")

        task = asyncio.ensure_future(unless_hung_up(endpoint, Request({"type": "http"}, connection.receive)))
        await asyncio.wait_for(connection.listened.wait(), 20)
        assert not task.done()
        connection.closed.set()
        assert (await asyncio.wait_for(task, 20)).status_code == 499 and ended == ["given back"]
        assert not task.cancelling()

    asyncio.run(scenario())


@pytest.mark.parametrize("first", ["hang-up", "cancellation"])
def test_a_cancellation_from_elsewhere_stays_one(first: str) -> None:
    """As of a server that is stopped."""

    async def scenario() -> None:
        connection, cleaning, cleaned = Connection(), asyncio.Event(), asyncio.Event()
        connection.parts = []

        async def work() -> None:
            async with HangUp(connection.receive):
                try:
                    await asyncio.Event().wait()
                finally:
                    cleaning.set()
                    await cleaned.wait()

        task = asyncio.ensure_future(work())
        await asyncio.wait_for(connection.listened.wait(), 20)
        for each in (first, "cancellation"):
            connection.closed.set() if each == "hang-up" else task.cancel()
            await asyncio.wait_for(cleaning.wait(), 20)
        cleaned.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


STATE = ["/health", "/health/", "/live", "/ready", "/metrics", "/usage"]
MODELS = ["/v1/models", "/v1/models/scripted-2", "/v1/models/another"]
PAGES = ["/docs", "/docs/swagger-ui.css", "/openapi.json", "/nowhere"]


@pytest.fixture(scope="module", params=["target", "drafter"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with endpoints(request.param) as (url, _), httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        yield client


@pytest.mark.parametrize("path", [*STATE, *MODELS, *PAGES])
def test_head_is_get_without_a_body(http: httpx.Client, path: str) -> None:
    head, get = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert len(get.content) > 0 and head.headers.keys() == get.headers.keys()
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":  # it counts the requests
        assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_head_is_refused_where_there_is_no_get(http: httpx.Client, path: str) -> None:
    reply = http.head(path)
    assert (reply.status_code, reply.headers["allow"], reply.content) == (405, "POST", b"")


def test_a_stream_has_its_headers_alone() -> None:
    with endpoints("target") as (url, _), httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
        session = http.post("/prefill", json={"prompt": "def f(", "max_tokens": 400}).json()["session_id"]
        reply = http.head(f"/sessions/{session}/stream")
        assert (reply.status_code, reply.content) == (200, b"")
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert http.head("/verify").headers["allow"] == "POST"
        assert http.head("/model").status_code == 200 == http.head("/vocabulary").status_code


def test_readers_are_few_and_forget_the_oldest() -> None:
    async def listen() -> None:
        feed, reader = EventFeed[int](), FeedReader[int]()
        feed.put(-1)  # nobody listens
        with feed.heard_by(reader):
            for number in range(MOST_WAITING + 3):
                feed.put(number)
            assert await reader.next(10) == [*range(3, MOST_WAITING + 3)]
            others = [feed.heard_by(FeedReader[int]()) for _ in range(MOST_READERS - 1)]
            for each in others:
                each.__enter__()
            with pytest.raises(Overloaded, match="16 pages listen already"), feed.heard_by(FeedReader[int]()):
                pass
            for each in others:
                each.__exit__(None, None, None)
            assert feed.heard
            feed.close()
            await reader.rest(1e6)  # returns at once
            assert reader.closed and await reader.next(10) == []
        assert not feed.heard

    asyncio.run(listen())


def test_x_forwarded_for_is_not_trusted() -> None:
    """Otherwise, every process on this machine could claim many addresses and use a quota for each."""
    assert not configured(FastAPI()).proxy_headers


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_address_is_shown_as_in_a_url(host: str, shown: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 on this machine")
    [bound] = bind_sockets(host, 0)
    with bound:
        assert shown_address(bound) == f"{shown}:{bound.getsockname()[1]}"
