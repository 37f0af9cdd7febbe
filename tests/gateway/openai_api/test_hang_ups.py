"""A client that hangs up ends its text at once; a silent stream shows that it lives; too many texts are refused."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from gateway.openai_api import generation
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.text_queue import QueuedText, TextQueue
from gateway.openai_api.texts import End, Events, NewTokens
from gateway.openai_api.writers import ChatWriter
from specpair.http_service import connection
from specpair.speculation.acceptance.round_counts import RoundCounts
from tests.gateway.openai_api.conftest import served, verifier
from tests.verifier_server.conftest import LiveServer, settings
from verifier_server.engine.engine import Engine

SLOW = Script(seed=2, support=128, seconds_per_pass=0.01)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
BODY = {"prompt": "def f(", "max_tokens": 400, "seed": 1}


@contextmanager
def slow(kind: str, **given: int) -> Iterator[tuple[str, LiveServer]]:
    """The address of a service, and its verifier, with passes of 10 ms."""
    backend = ScriptedBackend(SLOW, slots=4, context_length=512, max_batch_tokens=128)
    live = LiveServer(settings(**({} if kind == "drafter" else given)), backend)
    live.wait_until_ready()
    try:
        if kind == "verifier":
            yield live.url, live
            return
        pair = Pair(live.url, DraftModel(Path("2"), "scripted"), texts=2)
        with served(create_app(pair, Options(), texts=2, queue=given.get("queue", 4))) as url:
            yield url, live
    finally:
        live.close()


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_ends_its_text(kind: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBES", (0.05, 0.05))  # instead of a second
    with slow(kind) as (url, live):
        with httpx.Client(trust_env=False, timeout=30) as http:
            if stream:
                with http.stream("POST", f"{url}/v1/completions", json=BODY | {"stream": True}) as reply:
                    next(reply.iter_lines())
            else:
                free, body = _held(live, monkeypatch), json.dumps(BODY).encode()
                with socket.create_connection((httpx.URL(url).host, httpx.URL(url).port)) as left:
                    left.sendall(HEAD % len(body) + body)
                    assert _within(20.0, lambda: len(live.service.sessions) == 1), "the text has not begun"
                free.set()
        assert _within(20.0, lambda: len(live.service.sessions) == 0)
        engine = live.service.loader.loaded().engine
        assert isinstance(engine, Engine)
        backend = engine.backend
        assert isinstance(backend, ScriptedBackend)
        before = backend.passes
        time.sleep(0.1)
        assert backend.passes <= before + 1, "the text went on"


def _held(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Holds the forward passes of a verifier until the event is set."""
    engine, free = live.service.loader.loaded().engine, threading.Event()
    assert isinstance(engine, Engine)
    backend = engine.backend
    assert isinstance(backend, ScriptedBackend)
    extend = backend.extend

    def held(*arguments: object) -> object:
        free.wait(20.0)
        return extend(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(backend, "extend", held)
    return free


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
def test_a_silent_stream_sends_comments(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "HEARTBEAT", 0.02)
    with slow(kind) as (url, live):
        free = _held(live, monkeypatch)
        body = BODY | {"stream": True, "max_tokens": 20}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, trust_env=False) as reply:
            lines = reply.iter_lines()
            read = ": prompt 0/7" if kind == "verifier" else ":"
            assert [next(lines) for _ in range(4)] == [read, "", read, ""]
            free.set()
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert data[-1] == "[DONE]" and json.loads(data[-2])["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("path", "body", "event", "last"),
    [
        ("responses", {"input": "Hi", "max_output_tokens": 4}, "response.in_progress", "response.incomplete"),
        ("messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}, "ping", "message_stop"),
    ],
)
def test_a_silent_answer_has_events_that_it_goes_on(
    path: str, body: dict[str, Any], event: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex gives up after five minutes without one: it passes over comments."""
    monkeypatch.setattr(generation, "HEARTBEAT", 0.02)
    with verifier() as live:
        free = _held(live, monkeypatch)
        with httpx.stream("POST", f"{live.url}/v1/{path}", json=body | {"stream": True}, trust_env=False) as reply:
            names: list[str] = []
            for line in reply.iter_lines():
                names += [line.removeprefix("event: ")] if line.startswith("event: ") else []
                if names.count(event) == 3:
                    free.set()
        assert names.count(event) >= 3 and set(names[2 : names.index(event) + 2]) == {event} and names[-1] == last


def test_texts_beyond_the_queue_are_refused_at_once_and_the_others_are_generated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with slow("drafter", queue=1) as (url, live), ThreadPoolExecutor(8) as threads:
        short, free, replies = BODY | {"max_tokens": 30}, _held(live, monkeypatch), list[httpx.Response]()

        def ask(_: int) -> httpx.Response:
            replies.append(httpx.post(f"{url}/v1/completions", json=short, trust_env=False, timeout=60))
            return replies[-1]

        asking = [threads.submit(ask, number) for number in range(8)]
        assert _within(20.0, lambda: len(replies) == 5), "two texts are generated, and one waits"
        free.set()
        assert all(each.result().status_code in (200, 503) for each in asking)
        done = [reply for reply in replies if reply.status_code == 200]
        refused = replies[:5]
        assert len(done) == 3 and {reply.status_code for reply in refused} == {503}
        assert {reply.json()["choices"][0]["text"] for reply in done} == {done[0].json()["choices"][0]["text"]}
        for reply in refused:
            assert int(reply.headers["Retry-After"]) >= 1 and reply.json()["error"]["code"] == "overloaded"
        assert ask(0).status_code == 200, "the places are free again"
        assert _within(5.0, lambda: len(live.service.sessions) == 0)


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
def test_nothing_is_left_of_a_hundred_clients_that_hang_up_at_once(kind: str) -> None:
    body = json.dumps(BODY | {"stream": True, "n": 2}).encode()
    with slow(kind, **({"queue": 300} if kind == "drafter" else {})) as (url, live):
        threads = threading.active_count()
        address = httpx.URL(url)
        for number in range(100):
            with socket.create_connection((address.host, address.port), timeout=20) as connection:
                connection.sendall(HEAD % len(body) + body)
                if number % 3 == 0:
                    assert connection.recv(12).startswith(b"HTTP/1.1 ")
        assert _within(20.0, lambda: len(live.service.sessions) == 0)
        short = BODY | {"max_tokens": 4}
        texts = [httpx.post(f"{url}/v1/completions", json=short, trust_env=False, timeout=60).json() for _ in "ab"]
        assert texts[0]["choices"] == texts[1]["choices"]
        assert _within(20.0, lambda: threading.active_count() <= threads + 12), "threads are left"


class _Text:
    """A text of these events; without an end it goes on for ever."""

    counts = RoundCounts()
    cached_tokens = 0
    prompt_progress = None

    def __init__(self, *events: NewTokens | End) -> None:
        self.closed = asyncio.Event()
        self._given = events

    def begin(self) -> None:
        pass

    def __aiter__(self) -> AsyncIterator[NewTokens | End]:
        return self._events()

    def stopped(self) -> None:
        raise AssertionError("it has no stop string")

    async def aclose(self) -> None:
        self.closed.set()

    async def _events(self) -> AsyncIterator[NewTokens | End]:
        for event in self._given:
            yield event
        if not self._given:
            await asyncio.Event().wait()


async def _never() -> generation.TextGeneration:
    raise AssertionError("the target does not change")


def _chat_events(events: Events, text: QueuedText) -> AsyncIterator[bytes]:
    text.open(events)
    vocabulary = ScriptedBackend(SLOW).vocabulary
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "a"}]})
    texts = generation.TextGeneration(generation.GenerationSpec("a model", vocabulary, [], 1), [text], 0.0)
    return generation.events(texts, _never, ChatWriter(texts, request))


def test_a_client_that_hangs_up_before_the_first_token_leaves_its_place() -> None:
    """The first chunk of a chat has no token, and comes before the text has begun."""

    async def scenario() -> None:
        text = _Text()
        events = _chat_events(text, *TextQueue(lambda: 1, lambda: 1, lambda: 0.0).enter())
        assert b'"role":"assistant"' in await anext(events)
        await events.aclose()  # type: ignore[attr-defined]  # it is a generator
        await asyncio.wait_for(text.closed.wait(), 20)

    asyncio.run(scenario())


def test_a_reader_that_reads_nothing_keeps_no_place() -> None:
    async def scenario() -> None:
        places = TextQueue(lambda: 1, lambda: 1, lambda: 0.0)
        first, second = places.enter(2)
        text = _Text(NewTokens([97]), End("stop"))
        events = _chat_events(text, first)
        await anext(events)  # and no more
        async with asyncio.timeout(20):
            await second.turn()
        assert text.closed.is_set()
        assert b'"content":"a"' in await anext(events), "the text is still there"
        await events.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())
