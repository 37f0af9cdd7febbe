"""Run the actions that the controller decides on: draft steps, verify requests, the event stream.

`ThreadedExecutor` gives each of them a thread. The thread in which an event happens reacts to it at once: to hand it to
another thread would take as long as the decision. In lockstep no two actions run at the same time, and
`SerialExecutor` runs all of them in the caller's thread.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from drafter_client.errors import ConnectionLost, DrafterError
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import StreamEnd, VerifyResponse
from drafters.base import Drafter, Expansion
from speculation.acceptance.decisions import Decision
from speculation.drafts.node_selection import DraftStep
from speculation.policy.verifier_timeline import InFlightDraft

_JOIN = 10.0  # seconds; a draft step or a broken-off exchange is over long before
_PIECE = 512  # tokens of a prompt that are read before looking whether all is over


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft step ended. `onward`: the next one has begun, as the step said."""

    expansion: Expansion
    onward: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a guess came."""

    in_flight_draft: InFlightDraft
    response: VerifyResponse


@dataclass(frozen=True, slots=True)
class Streamed:
    """The verifier says what it has committed. `own`: by itself, no guess being there."""

    position: int
    tokens: list[int]
    own: bool
    finish_reason: str | None
    forward_ms: float | None = None  # of the pass that brought the last of them, where it was its own
    decisions: list[Decision] | None = None  # on each of them, where asked for


@dataclass(frozen=True, slots=True)
class Failed:
    """Something cannot go on."""

    error: BaseException


Event = Drafted | Answered | Streamed | Failed


React = Callable[[Event], bool]  # says whether whoever waits should look


class Executor(Protocol):
    """Carries out steps and guesses, and reacts to what comes of them."""

    def read(self, text: list[int], held: int) -> None:
        """Have the drafter read the text so far, of which it may hold so many tokens, while the verifier does."""

    def open(self, session_id: str, position: int, react: React) -> None:
        """The session to work for, from where on its stream is wanted, and what to do about events, in any thread."""

    def draft(self, step: DraftStep, text: list[int]) -> None:
        """Begin a draft step; `text` is the committed text, which is only appended to."""

    def send(self, in_flight_draft: InFlightDraft) -> None:
        """Send a guess."""

    def wait(self, timeout: float | None) -> bool:
        """Return when a reaction says so, with False when none did within `timeout` seconds."""

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, beyond the client's own."""

    def close(self) -> None:
        """End whatever is under way."""


class SerialExecutor:
    """One thing after the other, on the client's own connection."""

    def __init__(self, client: VerifierClient, drafter: Drafter) -> None:
        self._client, self._drafter = client, drafter
        self._session_id = ""
        self._events: deque[Event] = deque()
        self._react: React

    def read(self, text: list[int], held: int) -> None:
        pass  # it will with the first step

    def open(self, session_id: str, position: int, react: React) -> None:
        self._session_id, self._react = session_id, react

    def draft(self, step: DraftStep, text: list[int]) -> None:
        self._events.append(Drafted(self._drafter.expand(text[: step.length], step.tails, step.runners_up)))

    def send(self, in_flight_draft: InFlightDraft) -> None:
        response = self._client.verify(
            self._session_id, in_flight_draft.position, in_flight_draft.drafts, in_flight_draft.probs
        )
        self._events.append(Answered(in_flight_draft, response))

    def wait(self, timeout: float | None) -> bool:
        if not self._events:
            return False
        self._react(self._events.popleft())
        return True  # if only to go on with the next event

    def traffic(self) -> tuple[int, int]:
        return 0, 0

    def close(self) -> None:
        pass  # nothing is ever under way


class _Lane:
    """A connection for one guess at a time."""

    def __init__(self, client: VerifierClient) -> None:
        self.client = client
        self.drafts: SimpleQueue[tuple[InFlightDraft, Callable[[], VerifyResponse]] | None] = SimpleQueue()


class ThreadedExecutor:
    """A thread for the draft model, one for what it finds while it goes on, one for each guess that may be under way,
    and one for the event stream."""

    def __init__(self, client: VerifierClient, drafter: Drafter, lanes: int, stream: bool) -> None:
        self._drafter = drafter
        self._happened: SimpleQueue[None] = SimpleQueue()
        self._steps: SimpleQueue[tuple[DraftStep | None, list[int]] | None] = SimpleQueue()  # no step: read only
        self._drafted: deque[Drafted] = deque()  # and not yet reacted to
        self._reacting = threading.Lock()  # to those, in their order
        self._going_on: SimpleQueue[bool] = SimpleQueue()  # True: there is one, and the next step is under way
        self._lanes = [_Lane(client.another()) for _ in range(lanes)]
        self._idle: SimpleQueue[_Lane] = SimpleQueue()
        self._session_id, self._position = "", 0
        self._held = 0  # tokens of the text that the drafter may hold
        self._react: React
        self._opened = threading.Event()
        self._closed = False
        self._clients = [lane.client for lane in self._lanes]
        work: list[Callable[[], None]] = [self._draft, self._take_in_meanwhile]
        work += [self._carry(lane) for lane in self._lanes]
        if stream:
            self._clients.append(client.another())
            work.append(self._listen(self._clients[-1]))
        self._threads = [threading.Thread(target=self._guarded(each), daemon=True) for each in work]
        for thread in self._threads:
            thread.start()

    def read(self, text: list[int], held: int) -> None:
        self._held = held
        self._steps.put((None, text))

    def open(self, session_id: str, position: int, react: React) -> None:
        self._session_id, self._position, self._react = session_id, position, react
        self._opened.set()

    def draft(self, step: DraftStep, text: list[int]) -> None:
        self._steps.put((step, text))

    def send(self, in_flight_draft: InFlightDraft) -> None:
        lane = self._idle.get()
        # Sent from here and now: to wake the lane's thread first takes as long as the rest of it.
        answer = lane.client.guess(
            self._session_id,
            in_flight_draft.position,
            in_flight_draft.drafts,
            in_flight_draft.next_in_ms,
            in_flight_draft.goes_on,
        )
        lane.drafts.put((in_flight_draft, answer))

    def wait(self, timeout: float | None) -> bool:
        try:
            self._happened.get(timeout=timeout)
        except Empty:
            return False
        with suppress(Empty):
            while True:
                self._happened.get_nowait()
        return True

    def traffic(self) -> tuple[int, int]:
        sent = sum(client.transport.sent for client in self._clients)
        return sent, sum(client.transport.received for client in self._clients)

    def close(self) -> None:
        self._closed = True
        self._opened.set()
        self._steps.put(None)
        self._going_on.put(False)
        for lane in self._lanes:
            lane.drafts.put(None)
        for client in self._clients:
            client.abort()
        for thread in self._threads:
            thread.join(_JOIN)

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # whatever it is, the main thread must not wait for ever
                self._opened.wait()
                self._tell(Failed(error))

        return run

    def _tell(self, event: Event) -> None:
        if not self._closed and self._react(event):
            self._happened.put(None)

    def _draft(self) -> None:
        before = 0  # tokens of the prompt that the first step may have had to wait for
        while (order := self._steps.get()) is not None:
            step, known = order
            if step is None:
                before = sum(self._read(known))
                continue
            text, tails = known[: step.length], step.tails
            while tails:
                expansion = self._drafter.expand(text, tails, step.runners_up)
                expansion, before = expansion._replace(read=before + expansion.read), 0
                onward = step.onward(tails[0], expansion.predictions[0].token)
                self._drafted.append(Drafted(expansion, onward is not None))
                tails = [onward] if onward is not None and not self._closed else []
                if tails:
                    self._going_on.put(True)
                else:
                    self._take_in()

    def _read(self, text: list[int]) -> Iterator[int]:
        """Tokens read, piece by piece: nobody waits for the rest of a prompt that is of no use any more."""
        for end in (*range(self._held + _PIECE, len(text), _PIECE), len(text)):
            if not self._closed:
                yield self._drafter.expand(text[:end], [[]], False).read

    def _take_in_meanwhile(self) -> None:
        while self._going_on.get():
            self._take_in()

    def _take_in(self) -> None:
        with self._reacting:
            while self._drafted:
                self._tell(self._drafted.popleft())

    def _carry(self, lane: _Lane) -> Callable[[], None]:
        def work() -> None:
            with closing(lane.client):
                with suppress(DrafterError):  # the first guess will meet it again, and say so
                    lane.client.transport.connect()
                self._idle.put(lane)
                while (guess := lane.drafts.get()) is not None:
                    in_flight_draft, answer = guess
                    try:
                        response = answer()
                    finally:
                        self._idle.put(lane)
                    self._tell(Answered(in_flight_draft, response))

        return work

    def _listen(self, client: VerifierClient) -> Callable[[], None]:
        def work() -> None:
            with closing(client):
                with suppress(DrafterError):
                    client.transport.connect()
                self._opened.wait()
                while not self._closed and not client.persist(lambda: self._follow(client)):
                    pass  # it broke after some news: the next attempt is a first one again

        return work

    def _follow(self, client: VerifierClient) -> bool:
        """Read the stream from where it was read last; whether the text has ended."""
        began = self._position
        try:
            for told in client.stream(self._session_id, self._position):
                if isinstance(told, StreamEnd):
                    self._tell(Streamed(self._position, [], False, told.finish_reason))
                    return True
                self._position = told.position + len(told.tokens)
                self._tell(Streamed(told.position, told.tokens, told.own, None, told.forward_ms, told.decisions))
        except ConnectionLost:
            if self._position == began:
                raise
            return False
        raise ConnectionLost(f"the event stream of {client.url} ended before the text did")
