"""Runs the controller's actions, draft steps and verify requests, and reads the event stream.

`ThreadedExecutor` gives each of them a thread. The thread in which an event happens reacts to it at once: a hand-over
to another thread would take as long as the controller's decision. In lockstep no two actions run at the same time, and
`SerialExecutor` runs all of them in the caller's thread.
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from queue import Empty, SimpleQueue

from specpair.drafters.base import Drafter, read_between_steps, read_prompt
from specpair.drafters.run.events import Answered, Completion, Drafted, DraftVerifier, Failed, VerifierConnection
from specpair.speculation.drafting.node_selection import DraftStep
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.policy.verifier_timeline import InFlightDraft

_JOIN_TIMEOUT = 10.0  # seconds to wait for a thread to end; a draft step or an aborted exchange ends much earlier


class Executor(ABC):
    """Runs draft steps and verify requests, and passes their events to `react`.

    `at_once`: whether the thread in which an event happens runs the actions that are due after it. Where no two actions
    run at the same time, the caller's thread does: the tokens are read first, and the decision knows all outcomes.
    """

    at_once = False

    def read(self, text: list[int], held: int) -> None:  # noqa: B027, as it is optional
        """Have the drafter read `text` during the verifier's prefill, not only in the first draft step.

        `held`: tokens it may have read of it before.
        """

    def open(self, position: int, react: "React") -> None:  # noqa: B027
        """Begin to work: the session is open. Read its event stream from `position` on. Any thread may call `react`."""

    @abstractmethod
    def draft(self, step: DraftStep, text: list[int]) -> None:
        """Begin a draft step. `text`: the committed text, which the caller may extend meanwhile."""

    @abstractmethod
    def send(self, in_flight_draft: InFlightDraft) -> None:
        """Send the verify request of a draft."""

    @abstractmethod
    def wait(self, timeout: float | None) -> bool:
        """Wait until `react` returns True, at most `timeout` seconds (None: without limit). Returns whether it did."""

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received so far over connections other than the caller's."""
        return 0, 0

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Have the caller's thread raise `error`, after `open`. May be called from any thread."""

    def close(self) -> None:  # noqa: B027
        """Abort all actions under way."""


# Reacts to an event, by further actions of the executor in which it happened. Returns whether the thread in
# `Executor.wait` has to wake up.
React = Callable[[Completion, Executor], bool]


class SerialExecutor(Executor):
    """Runs one action after the other. No action outlives its call."""

    def __init__(self, connection: DraftVerifier, drafter: Drafter) -> None:
        self._connection, self._drafter = connection, drafter
        self._events: deque[Completion] = deque()
        self._react: React

    def open(self, position: int, react: React) -> None:
        self._react = react

    def draft(self, step: DraftStep, text: list[int]) -> None:
        self._events.append(Drafted(self._drafter.expand(text[: step.length], step.tails, step.runners_up)))

    def send(self, in_flight_draft: InFlightDraft) -> None:
        self._events.append(Answered(in_flight_draft, self._connection.verify(in_flight_draft.draft)))

    def wait(self, timeout: float | None) -> bool:
        if not self._events:
            return False
        self._react(self._events.popleft(), self)
        return True  # the caller has to handle the next event, if nothing else

    def fail(self, error: Exception) -> None:
        self._events.append(Failed(error))


class _Carried(threading.local):
    """The draft that the present thread sends next by itself, without a hand-over to another thread. It keeps one only
    while it reacts to a response (`keeps`): its connection is free then."""

    keeps = False
    draft: InFlightDraft | None = None


class ThreadedExecutor(Executor):
    """Runs all actions in threads.

    One thread runs the draft model. One reacts to a finished draft step while the next one runs. One for each
    connection carries one verify request at a time, and one reads the event stream."""

    at_once = True

    def __init__(self, connection: VerifierConnection, drafter: Drafter, mechanisms: Mechanisms = Mechanisms()) -> None:
        """`connection`: the event stream is read over it, and the others are made from it. Its user closes it.
        `mechanisms`: how many verify requests can be in flight at once, whether the drafter reads the text during the
            verifier's prefill, and whether there is an event stream.
        """
        self._drafter = drafter
        self._wake_ups: SimpleQueue[None] = SimpleQueue()
        # Draft steps, each with the committed text; step None: only read the text; None: end the thread.
        self._steps: SimpleQueue[tuple[DraftStep | None, list[int]] | None] = SimpleQueue()
        self._drafted: deque[Drafted] = deque()  # finished steps that nothing has reacted to yet
        self._reacting = threading.Lock()  # keeps the reactions to finished steps in order
        self._step_continues: SimpleQueue[bool] = SimpleQueue()  # True: a step ended and the next has begun; False: end
        self._unsent: SimpleQueue[InFlightDraft | None] = SimpleQueue()  # None: end the thread
        self._taken: SimpleQueue[None] = SimpleQueue()  # a thread has taken a draft from `_unsent`
        self._carried = _Carried()
        self._position = 0
        self._held = 0  # leading tokens of the text that the drafter may have read before
        self._react: React
        self._opened = threading.Event()
        self._closed = False
        self._overlap = mechanisms.overlap
        self._connections = [connection.another() for _ in range(mechanisms.in_flight)]
        work: dict[str, Callable[[], None]] = {"draft": self._draft, "react": self._react_while_drafting}
        work |= {f"verify {number}": partial(self._carry, each) for number, each in enumerate(self._connections, 1)}
        self._listener = connection if mechanisms.self_continue else None
        if self._listener is not None:
            work["stream"] = partial(self._listen, self._listener)
        self._threads = [
            threading.Thread(target=self._run, args=[each], name=name, daemon=True) for name, each in work.items()
        ]
        for thread in self._threads:
            thread.start()

    def read(self, text: list[int], held: int) -> None:
        self._held = held
        if self._overlap:  # else the first draft step reads it
            self._steps.put((None, text))

    def open(self, position: int, react: React) -> None:
        self._position, self._react = position, react
        self._opened.set()

    def draft(self, step: DraftStep, text: list[int]) -> None:
        self._steps.put((step, text))

    def send(self, in_flight_draft: InFlightDraft) -> None:
        carried = self._carried
        if carried.keeps and carried.draft is None:
            carried.draft = in_flight_draft
        else:
            self._unsent.put(in_flight_draft)
            self._taken.get()  # what this thread does next would keep the interpreter from the one that sends

    def wait(self, timeout: float | None) -> bool:
        try:
            self._wake_ups.get(timeout=timeout)
        except Empty:
            return False
        with suppress(Empty):
            while True:
                self._wake_ups.get_nowait()
        return True

    def traffic(self) -> tuple[int, int]:
        counts = [connection.traffic() for connection in self._connections]
        return sum(sent for sent, _ in counts), sum(received for _, received in counts)

    def fail(self, error: Exception) -> None:
        self._report(Failed(error))

    def close(self) -> None:
        self._closed = True
        self._opened.set()
        self._steps.put(None)
        self._step_continues.put(False)
        for connection in self._connections:
            self._unsent.put(None)
            connection.abort()
        if self._listener is not None:
            self._listener.abort()
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # whatever the error is, the caller's thread must not wait for ever
            self._opened.wait()
            self._report(Failed(error))

    def _report(self, event: Completion) -> None:
        if not self._closed and self._react(event, self):
            self._wake_ups.put(None)

    def _draft(self) -> None:
        before = 0  # tokens of the text that were read since the last step: the next step had to wait for them
        while True:
            before += read_between_steps(self._drafter, lambda: self._closed or not self._steps.empty())
            order = self._steps.get()
            if order is None:
                return
            step, known = order
            if step is None:
                before += read_prompt(self._drafter, known, self._held, lambda: self._closed, self._opened.is_set)
                continue
            text, tails = known[: step.length], step.tails
            while tails:
                expansion = self._drafter.expand(text, tails, step.runners_up)
                expansion, before = expansion._replace(read=before + expansion.read), 0
                onward = step.onward(tails[0], expansion.proposals[0].token)
                self._drafted.append(Drafted(expansion, onward is not None))
                tails = [onward] if onward is not None and not self._closed else []
                if tails:
                    self._step_continues.put(True)
                else:
                    self._react_to_steps()

    def _react_while_drafting(self) -> None:
        while self._step_continues.get():
            self._react_to_steps()

    def _react_to_steps(self) -> None:
        with self._reacting:
            while self._drafted:
                self._report(self._drafted.popleft())

    def _carry(self, connection: VerifierConnection) -> None:
        carried = self._carried
        with closing(connection):
            connection.connect()
            draft = self._take()
            while draft is not None:
                response = connection.verify(draft.draft, draft.policy)
                carried.keeps = True
                self._report(Answered(draft, response))
                carried.keeps = False
                kept, carried.draft = carried.draft, None
                draft = self._take() if kept is None else kept

    def _take(self) -> InFlightDraft | None:
        draft = self._unsent.get()
        self._taken.put(None)
        return draft

    def _listen(self, connection: VerifierConnection) -> None:
        connection.connect()
        self._opened.wait()
        if not self._closed:
            connection.listen(self._position, self._report)


def executor_of(connection: VerifierConnection, drafter: Drafter, mechanisms: Mechanisms) -> Executor:
    """The executor of a run with these mechanisms."""
    if mechanisms.overlap or mechanisms.self_continue:
        return ThreadedExecutor(connection, drafter, mechanisms)
    return SerialExecutor(connection, drafter)
