"""A client that hangs up ends its text at once; a silent stream shows that it lives; too many texts are refused."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from openai_api import generation
from tests.openai_api.conftest import served
from tests.verifier_server.conftest import LiveServer, settings
from verifier_server.api import openai_texts

SLOW = Script(seed=2, support=128, seconds_per_pass=0.01)
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
def test_a_client_that_hangs_up_ends_its_text(kind: str, stream: bool) -> None:
    with slow(kind) as (url, live):
        with httpx.Client(trust_env=False, timeout=30) as http:
            with http.stream("POST", f"{url}/v1/completions", json=BODY | {"stream": True}) as reply:
                next(reply.iter_lines())
            if not stream:
                with pytest.raises(httpx.ReadTimeout):
                    http.post(f"{url}/v1/completions", json=BODY, timeout=0.3)
        assert _within(5.0, lambda: len(live.service.sessions) == 0)
        backend = live.service.engine.backend
        assert isinstance(backend, ScriptedBackend)
        before = backend.passes
        time.sleep(0.1)
        assert backend.passes <= before + 1, "the text went on"


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
def test_a_silent_stream_sends_comments(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "HEARTBEAT", 0.02)
    with slow(kind) as (url, live):
        backend = live.service.engine.backend
        assert isinstance(backend, ScriptedBackend)
        free = threading.Event()
        forward = backend._forward

        def held(*arguments: object) -> object:
            free.wait(20.0)
            return forward(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(backend, "_forward", held)
        with httpx.stream("POST", f"{url}/v1/completions", json=BODY | {"stream": True}, trust_env=False) as reply:
            lines = reply.iter_lines()
            assert [next(lines) for _ in range(4)] == [":", "", ":", ""]
            free.set()
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert data[-1] == "[DONE]" and json.loads(data[-2])["choices"][0]["finish_reason"] == "length"


def test_texts_beyond_the_queue_are_refused_at_once_and_the_others_are_generated() -> None:
    with slow("drafter", queue=1) as (url, live), ThreadPoolExecutor(8) as threads:
        short = BODY | {"max_tokens": 60}

        def ask(_: int) -> httpx.Response:
            return httpx.post(f"{url}/v1/completions", json=short, trust_env=False, timeout=60)

        replies = list(threads.map(ask, range(8)))
        done = [reply for reply in replies if reply.status_code == 200]
        refused = [reply for reply in replies if reply.status_code == 503]
        assert len(done) >= 3 and len(done) + len(refused) == 8 and refused
        assert {reply.json()["choices"][0]["text"] for reply in done} == {done[0].json()["choices"][0]["text"]}
        for reply in refused:
            assert int(reply.headers["Retry-After"]) >= 1 and reply.json()["error"]["code"] == "overloaded"
        assert ask(0).status_code == 200, "the places are free again"
        assert _within(5.0, lambda: len(live.service.sessions) == 0)


def test_an_overloaded_verifier_refuses_with_a_status_even_for_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_texts, "WAITING_FOR_EACH_ROW", 0)  # it has four rows
    with slow("verifier") as (url, _), ThreadPoolExecutor(8) as threads:

        def ask(_: int) -> int:
            body = BODY | {"stream": True, "max_tokens": 60}
            return httpx.post(f"{url}/v1/completions", json=body, trust_env=False, timeout=60).status_code

        statuses = list(threads.map(ask, range(8)))
        assert set(statuses) == {200, 503}
