"""The connections of ThreadedExecutor, observed and broken: the text stays the target's, and nothing is left behind."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.errors import ConnectionLost
from drafter_client.http.client import VerifierClient
from drafter_client.http.connection import HttpConnection
from specpair.drafters.draft_model import ModelDrafter
from specpair.speculation.policy.schedule import Mechanisms
from tests.drafter_client.support import (
    ALL,
    EACH_WAY,
    GREEDY,
    PROMPT,
    Verifier,
    generate,
    target_alone,
    toy_drafter,
)
from verifier_server.engine.sequence_state import LEAD

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "no_waiting")


class Watched(HttpConnection):
    """A connection that a test can observe and break."""

    def __init__(self, line: "Line", *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._line = line
        self.before_release: tuple[int, int] | None = None
        line.connections.append(self)

    @contextmanager
    def respond(self, method: str, path: str, *given: Any, **more: Any) -> Iterator[httpx.Response]:
        if method == "DELETE":
            self.before_release = self.traffic.sent, self.traffic.received
        self._line.before(path)
        with super().respond(method, path, *given, **more) as response:
            yield response
        self._line.after(path)

    def events(self, response: httpx.Response) -> Iterator[tuple[str, bytes]]:
        for event in super().events(response):
            yield self._line.arrived(event)
            self._line.between()


class Line:
    """All connections of one client."""

    def __init__(self) -> None:
        self.connections: list[Watched] = []
        self.asked: list[str] = []

    def before(self, path: str) -> None:
        self.asked.append(path)
        self.in_use()

    def after(self, path: str) -> None:
        self.in_use()

    def between(self) -> None:
        """Between two events of a stream."""
        self.in_use()

    def in_use(self) -> None:
        """Called by `before`, `after` and `between`."""

    def arrived(self, event: tuple[str, bytes]) -> tuple[str, bytes]:
        return event

    @contextmanager
    def client(self, url: str) -> Iterator[VerifierClient]:
        with (
            patch("drafter_client.http.requests.HttpConnection", partial(Watched, self)),
            closing(VerifierClient(url, sleep=lambda _: None)) as client,
        ):
            yield client


def test_news_come_with_the_prefill_before_any_other_request(verifier: Verifier) -> None:
    class Held(Line):
        heard = threading.Event()

        def before(self, path: str) -> None:
            super().before(path)
            if path != "/prefill":
                assert self.heard.wait(20), "news come only after another request"

        def arrived(self, event: tuple[str, bytes]) -> tuple[str, bytes]:
            if event[0] == "tokens":
                self.heard.set()
            return event

    line = Held()
    with line.client(verifier.url) as client:
        run = generate(client, toy_drafter(), 3, mechanisms=ALL, max_tokens=40)
    assert run.tokens == target_alone(GREEDY, 40)
    assert line.asked[0] == "/prefill" and not [path for path in line.asked if "/stream" in path]
    assert verifier.sessions == 0


class Reader(ModelDrafter):
    """Has always something to read between draft steps."""

    def read_between_steps(self, stopped: Callable[[], bool]) -> int:
        end = time.monotonic() + 20
        while not stopped():
            assert time.monotonic() < end, "no step is due"
        return 0


def test_what_is_read_between_draft_steps_ends_when_one_is_due(verifier: Verifier) -> None:
    drafter = Reader(ScriptedBackend(Script(seed=1, agreement=0.8)), GREEDY)
    with Line().client(verifier.url) as client:
        run = generate(client, drafter, 3, mechanisms=replace(ALL, self_continue=False), max_tokens=40)
    assert run.tokens == target_alone(GREEDY, 40) and run.stats.drafted > 10


class _Shaky(Line):
    """Breaks a connection at every `every`-th use: before a request, after its reply, or between two events."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every
        self._counts: Counter[int] = Counter()  # by thread, so that the breaks are spread over all threads
        self.breaks = 0

    def in_use(self) -> None:
        thread = threading.get_ident()
        self._counts[thread] += 1
        if self._counts[thread] % self._every == 0:
            self.breaks += 1
            raise ConnectionLost("the connection broke")


@EACH_WAY
@pytest.mark.parametrize("every", [3, 4])
def test_text_does_not_depend_on_broken_connections(verifier: Verifier, mechanisms: Mechanisms, every: int) -> None:
    line = _Shaky(every)
    with line.client(verifier.url) as client:
        run = generate(client, toy_drafter(0.8), 3, mechanisms=mechanisms, max_tokens=80)
    assert run.tokens == target_alone(GREEDY, 80)
    assert run.stats.accepted <= run.stats.drafted
    assert line.breaks > 0 and verifier.sessions == 0


def test_broken_stream_resumes_at_the_last_position(verifier: Verifier) -> None:
    class Breaking(Line):
        def between(self) -> None:
            raise ConnectionLost("the connection broke")

    line = Breaking()
    # More than self-continuation commits before the drafter's position is known, so that one event cannot bring it all.
    count = 3 * LEAD
    with line.client(verifier.url) as client:
        run = generate(client, toy_drafter(0.0), 0, mechanisms=ALL, max_tokens=count)
    assert run.tokens == target_alone(GREEDY, count)
    begins = [int(path.partition("from=")[2]) for path in line.asked if "/stream" in path]
    assert len(begins) > 1 and begins[0] == len(PROMPT) + 1
    assert begins == sorted(set(begins)), "each stream begins after the tokens of the last one"
