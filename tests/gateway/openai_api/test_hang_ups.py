"""A client that hangs up ends its text at once; a silent stream shows that it lives; too many texts are refused."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from gateway.openai_api import generation
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.text_queue import QueuedText, TextQueue
from gateway.openai_api.texts import End, Events, NewTokens
from gateway.openai_api.writers import ChatWriter
from gateway.router.messages import NodeSpec
from specpair.http_service import connection
from specpair.http_service.replies import hang_up
from specpair.speculation.acceptance.round_counts import RoundCounts
from tests.gateway.openai_api.conftest import CHATML, drafting, serving
from tests.gateway.router.stub_nodes import routing
from tests.verifier_server.conftest import LiveServer
from tests.verifier_server.support import Gated
from tests.waiting import until

HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BODY = {"prompt": "def f(", "max_tokens": 400, "seed": 1}
LONG = "abcdefgh" * 40  # read in several passes
MESSAGES = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 4}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": [LONG, LONG[1:]], "max_tokens": 4},
    "/v1/chat/completions": MESSAGES,
    "/v1/responses": {"input": LONG, "max_output_tokens": 4},
    "/v1/messages": MESSAGES,
}
OWN: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": LONG, "max_tokens": 4},
    "/prefill": {"prompt": LONG, "max_tokens": 4},
}


class Held(Gated):
    """A target with the template of a chat, whose passes can be held."""

    def __init__(self, seconds_per_pass: float = 0.0) -> None:
        script = Script(seed=2, support=128, seconds_per_pass=seconds_per_pass)
        super().__init__(script, slots=4, context_length=512, max_batch_tokens=128)
        self.chat_template = CHATML


@contextmanager
def service(kind: str, target: Held, texts: int = 2, queue: int = 4) -> Iterator[tuple[str, LiveServer, str]]:
    """The address of a service, its verifier, and the address of what queues texts. `texts`, `queue`: of a drafter."""
    fused = {"draft_backend": "scripted", "draft_model": "1"} if kind == "fused" else {}
    draft = ScriptedBackend(Script(seed=2, support=128), slots=4, context_length=512) if fused else None
    with ExitStack() as stack:
        live = stack.enter_context(serving(target, draft=draft, **fused))
        url = queued = live.url
        if kind in ("drafter", "router"):
            url = queued = stack.enter_context(drafting(live.url, texts=texts, queue=queue))
        if kind == "router":
            url = str(stack.enter_context(routing(specs=[NodeSpec(url)])).http.base_url)
        yield url, live, queued


def leave(url: str, path: str, body: dict[str, Any], arrived: Callable[[], bool]) -> None:
    """Send a request, and hang up once `arrived` holds."""
    content, address = json.dumps(body).encode(), httpx.URL(url)
    with socket.create_connection((address.host, address.port or 80)) as connection:
        connection.sendall(HEAD % (path.encode(), len(content)) + content)
        until(arrived, "the text has not begun", 20.0)


def overloaded(url: str) -> bool:
    """Whether the one place of a service for texts is taken."""
    return "overloaded" in httpx.get(f"{url}/health", trust_env=False).json()


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_ends_its_text(kind: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBES", (0.05, 0.05))  # instead of a second
    target = Held(0.01)
    with service(kind, target) as (url, live, _):
        if stream:
            with httpx.stream("POST", f"{url}/v1/completions", json=BODY | {"stream": True}, trust_env=False) as reply:
                next(reply.iter_lines())
        else:
            target.gate.clear()
            leave(url, "/v1/completions", BODY, lambda: len(live.service.sessions) == 1)
            target.gate.set()
        until(lambda: len(live.service.sessions) == 0, "the text goes on", 20.0)
        before = target.passes
        time.sleep(0.1)
        assert target.passes <= before + 1, "the text went on"


@pytest.mark.parametrize("kind", ["target", "fused", "drafter", "router"])
def test_a_client_that_leaves_costs_no_further_pass_and_no_place(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBES", (0.02, 0.02))
    monkeypatch.setattr(hang_up, "PATIENCE", 0.02)
    target = Held()
    with service(kind, target, texts=1, queue=1) as (url, live, queued):
        asked = [(path, body | {"stream": stream}) for path, body in BODIES.items() for stream in (True, False)]
        if url == live.url:
            asked += [("/generate", OWN["/generate"] | {"stream": True}), *OWN.items()]
        for path, body in asked:
            engine, passes = live.service.engine, target.passes
            target.gate.clear()
            target.entered.clear()
            leave(url, path, body, target.entered.is_set)
            until(lambda: len(live.service.sessions) == 0, f"{path}: the verifier keeps the session")
            until(lambda: not overloaded(queued), f"{path}: the place is taken")
            target.gate.set()
            engine.check_integrity()  # between two passes
            engine.check_integrity()
            assert target.passes == passes + 1, f"{path} {body}: the reading of the prompt went on"
        again = httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 1}, trust_env=False, timeout=20)
        assert again.status_code == 200, again.text


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
def test_a_silent_stream_sends_comments(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "HEARTBEAT", 0.02)
    target = Held()
    with service(kind, target) as (url, _, _):
        target.gate.clear()
        body = BODY | {"stream": True, "max_tokens": 20}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, trust_env=False) as reply:
            lines = reply.iter_lines()
            read = ": prompt 0/7" if kind == "verifier" else ":"
            assert [next(lines) for _ in range(4)] == [read, "", read, ""]
            target.gate.set()
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
    target = Held()
    with serving(target) as live:
        target.gate.clear()
        with httpx.stream("POST", f"{live.url}/v1/{path}", json=body | {"stream": True}, trust_env=False) as reply:
            names: list[str] = []
            for line in reply.iter_lines():
                names += [line.removeprefix("event: ")] if line.startswith("event: ") else []
                if names.count(event) == 3:
                    target.gate.set()
        assert names.count(event) >= 3 and set(names[2 : names.index(event) + 2]) == {event} and names[-1] == last


def test_texts_beyond_the_queue_are_refused_at_once_and_the_others_are_generated() -> None:
    target = Held(0.01)
    with service("drafter", target, queue=1) as (url, live, _), ThreadPoolExecutor(8) as threads:
        target.gate.clear()
        short, replies = BODY | {"max_tokens": 30}, list[httpx.Response]()

        def ask(_: int) -> httpx.Response:
            replies.append(httpx.post(f"{url}/v1/completions", json=short, trust_env=False, timeout=60))
            return replies[-1]

        asking = [threads.submit(ask, number) for number in range(8)]
        until(lambda: len(replies) == 5, "two texts are generated, and one waits", 20.0)
        target.gate.set()
        assert all(each.result().status_code in (200, 503) for each in asking)
        done = [reply for reply in replies if reply.status_code == 200]
        refused = replies[:5]
        assert len(done) == 3 and {reply.status_code for reply in refused} == {503}
        assert {reply.json()["choices"][0]["text"] for reply in done} == {done[0].json()["choices"][0]["text"]}
        for reply in refused:
            assert int(reply.headers["Retry-After"]) >= 1 and reply.json()["error"]["code"] == "overloaded"
        assert ask(0).status_code == 200, "the places are free again"
        until(lambda: len(live.service.sessions) == 0, "a session is left")


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
def test_nothing_is_left_of_a_hundred_clients_that_hang_up_at_once(kind: str) -> None:
    body = json.dumps(BODY | {"stream": True, "n": 2}).encode()
    with service(kind, Held(0.01), queue=300) as (url, live, _):
        threads = threading.active_count()
        address = httpx.URL(url)
        for number in range(100):
            with socket.create_connection((address.host, address.port), timeout=20) as connection:
                connection.sendall(HEAD % (b"/v1/completions", len(body)) + body)
                if number % 3 == 0:
                    assert connection.recv(12).startswith(b"HTTP/1.1 ")
        until(lambda: len(live.service.sessions) == 0, "a session is left", 20.0)
        short = BODY | {"max_tokens": 4}
        texts = [httpx.post(f"{url}/v1/completions", json=short, trust_env=False, timeout=60).json() for _ in "ab"]
        assert texts[0]["choices"] == texts[1]["choices"]
        until(lambda: threading.active_count() <= threads + 12, "threads are left", 20.0)


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
    vocabulary = Held().vocabulary
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
