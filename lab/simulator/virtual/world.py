"""Verifiers in virtual time: the real scheduler decides; time, network and costs are modelled.

The scheduler, the sessions and the acceptance of drafts are those of the verifier that ships. A pass takes the time of
a cost model, messages take the time of a modelled link, and the clock jumps from event to event. The time that the
programs themselves take is left out.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lab.simulator.costs.cost import PassCost
from lab.simulator.virtual.head import VirtualHead
from specpair.engines.backend import Backend
from specpair.engines.errors import BackendError
from specpair.protocol.errors import SpecPairError
from specpair.speculation.drafting.tree import Proposal
from verifier_server.engine.arrived_drafts import Answer, OnAnswer, Request
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.head_drafts import HeadQuestion
from verifier_server.engine.scheduler import Scheduler


class EventLoop:
    """The clock of all parties: it jumps from event to event. Times in seconds."""

    looks = False  # whether `look` is called after each event

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # how many have happened
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def at(self, when: float, do: Callable[[], object]) -> None:
        """Call `do` at time `when`, or now if that is past."""
        heapq.heappush(self._events, (when if when > self.now else self.now, next(self._order), do))

    def run(self, until: float = float("inf"), done: Callable[[], bool] = lambda: False) -> None:
        """Run the events in order, until there are none, up to time `until`, or until `done()` is true."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= until and not done():
            self.now, _, do = pop(events)
            self.events += 1
            do()
            if self.looks:
                self.look()

    def look(self) -> None:
        """Begin the work that is due."""


class ProcessQueue:
    """A process that does one task after the other, in the order of their arrival, on one core."""

    __slots__ = ("_free", "_seconds")

    def __init__(self, seconds: float) -> None:
        """`seconds`: of a task."""
        self._seconds, self._free = seconds, 0.0

    def done(self, now: float, tasks: int = 1) -> float:
        """When tasks that have come now are done."""
        self._free = (self._free if self._free > now else now) + tasks * self._seconds
        return self._free


class Verifier:
    """A verifier on an event loop. The caller that submits a request, or forgets a session, calls `look` afterwards."""

    def __init__(
        self,
        loop: EventLoop,
        backend: Backend,
        cost: Callable[[BatchPlan], float],
        *,
        check: bool = False,
        on_pass: Callable[[float, BatchPlan], object] = lambda began, plan: None,
        run: Callable[[float, Callable[[], None]], None] | None = None,
        process: ProcessQueue | None = None,
        head: tuple[PassCost, Callable[[HeadQuestion], Proposal | None]] | None = None,
        **options: object,
    ) -> None:
        """`cost`, `check`, `options`: as for `World`.
        `on_pass`: called as a pass begins, with the time and its plan.
        `run`: that of a `SharedDevice`; None: the verifier has its device for itself.
        `process`: has a task for each sequence of a pass, before the next pass; None: that takes no time.
        `head`: of the target, as for `VirtualHead`; None: it has none.
        """
        self.backend = backend
        self.head_time = 0.0 if head is None else head[0].seconds([(1, 0)])  # seconds of a step, as timed at load
        self.scheduler = Scheduler(backend, head_time=self.head_time, **options)  # type: ignore[arg-type]
        self._head = None if head is None else VirtualHead(self.scheduler, *head)
        if self._head is not None:
            self.scheduler.head = self._head
        # Questions for the head that wait for the end of a pass, and who takes the answers.
        self._asked: deque[tuple[Sequence[HeadQuestion], Callable[[Sequence[Proposal | None]], object]]] = deque()
        self.stopped = False  # whether it is lost: it computes nothing any more
        self._loop, self._cost, self._check, self._on_pass = loop, cost, check, on_pass
        self._run = run or (lambda seconds, over: loop.at(loop.now + seconds, over))
        self._process = process
        self._busy = False

    def look(self) -> None:
        """Begin the next verifier pass if one is due, as the engine thread does after every event."""
        if self.stopped:
            return
        if self._check:
            self.scheduler.check_integrity()
        if self._busy:
            return
        if self._asked:
            self._answer(*self._asked.popleft())
            return
        began = self._loop.now
        plan = self.scheduler.plan(began)
        if plan is None:
            if self.scheduler.wake_at is not None:
                assert self.scheduler.wake_at > began, "it would never sleep"
                self._loop.at(self.scheduler.wake_at, self.look)
            return
        drafting = 0.0
        if self._head is not None:
            head, before = self._head, self._head.spent
            self.scheduler.predict(plan, lambda: began + head.spent - before)
            drafting = head.spent - before
        else:
            self.scheduler.predict(plan, lambda: self._loop.now)
        if drafting:
            self._occupy(drafting, lambda: self._extend(plan))
        else:
            self._extend(plan)

    def ask_head(self, asked: Sequence[HeadQuestion], then: Callable[[Sequence[Proposal | None]], object]) -> None:
        """Have the target's head answer before the next pass, and call `then` with what it drafts: as
        `TokenEngine.ask_head`. The caller calls `look` afterwards."""
        self._asked.append((asked, then))

    def _answer(self, asked: Sequence[HeadQuestion], then: Callable[[Sequence[Proposal | None]], object]) -> None:
        assert self._head is not None, "there is no head to ask"
        before = self._head.spent
        found = self._head.answer(asked)

        def over() -> None:
            then(found)
            self.look()

        self._occupy(self._head.spent - before, over)

    def _extend(self, plan: BatchPlan) -> None:
        """Run the pass."""
        began = self._loop.now
        self._on_pass(began, plan)
        try:
            logits = self.backend.extend(plan.batch)
        except BackendError as error:
            self.scheduler.failed(plan, error)
            self._loop.at(began, self.look)
            return

        def computed() -> None:
            process, ended = self._process, self._loop.now
            if process is not None:
                ended = process.done(ended, 0)  # the engine's thread waits for its turn, and measures that, too

            def over() -> None:
                self.scheduler.conclude(plan, logits, began, ended)
                self.look()

            if process is None:
                over()
            else:
                done = process.done(ended, len(plan.batch))
                self._occupy(done - self._loop.now, over, lambda _, over: self._loop.at(done, over))

        self._occupy(self._cost(plan), computed)

    def _occupy(
        self,
        seconds: float,
        then: Callable[[], object],
        run: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """Be busy for so long, and then call `then`, unless the verifier is lost by then.

        `run`: what takes the time; None: the device.
        """
        self._busy = True

        def over() -> None:
            if not self.stopped:
                self._busy = False
                then()

        (run or self._run)(seconds, over)


class World(EventLoop):
    """A verifier and the clock of all parties. The verifier looks after every event."""

    looks = True

    def __init__(
        self, backend: Backend, cost: Callable[[BatchPlan], float], *, check: bool = False, **options: Any
    ) -> None:
        """`cost`: seconds of a verifier pass by its plan.
        `check`: whether to check the scheduler after every event.
        `options`: further arguments of the `Scheduler`.
        """
        super().__init__()
        self.plans: list[tuple[float, BatchPlan]] = []  # of each verifier pass, when it began and its plan
        self.backend = backend
        self._verifier = Verifier(
            self, backend, cost, check=check, on_pass=lambda began, plan: self.plans.append((began, plan)), **options
        )
        self.scheduler = self._verifier.scheduler
        self.head_time, self.ask_head = self._verifier.head_time, self._verifier.ask_head

    def look(self) -> None:
        """Have the verifier look."""
        self._verifier.look()

    def give_up(self, error: SpecPairError) -> None:
        """Raise the error: in a world alone, the verifier must keep up."""
        raise error


class Submits(Protocol):
    """The scheduler's interface for a drafter."""

    @property
    def max_drafts(self) -> int: ...

    def submit(self, request: Request, now: float) -> None: ...


class ReachableVerifier(Protocol):
    """A drafter's environment: a clock, and a reachable verifier. A `World` is one."""

    @property
    def now(self) -> float: ...

    @property
    def backend(self) -> Backend: ...

    @property
    def scheduler(self) -> Submits: ...

    def at(self, when: float, do: Callable[[], object]) -> None: ...

    def give_up(self, error: SpecPairError) -> None:
        """The device waits no longer: its text has failed with `error`."""


def or_raise(then: Callable[[Answer], None]) -> OnAnswer:
    """Pass answers on to `then`, and raise errors."""

    def done(result: Answer | SpecPairError) -> None:
        if isinstance(result, SpecPairError):
            raise result
        then(result)

    return done


class _Pass:
    __slots__ = ("left", "then")

    def __init__(self, left: float, then: Callable[[], object]) -> None:
        self.left, self.then = left, then


class SharedDevice:
    """Passes that run at once share the device evenly (processor sharing): of two, each takes twice as long meanwhile.

    That is what happens to passes that all wait for the same memory or the same arithmetic units.
    """

    def __init__(self, clock: EventLoop) -> None:
        self._clock = clock
        self._passes: list[_Pass] = []
        self._updated = 0.0
        self._timer = 0  # the number of the latest one: those before count no more

    def run(self, seconds: float, then: Callable[[], object]) -> None:
        """Call `then` when a pass is over that takes `seconds` where nothing else runs."""
        self._update()
        self._passes.append(_Pass(seconds, then))
        self._wait()

    def _update(self) -> None:
        """Take in what has run since the last time."""
        now = self._clock.now
        if self._passes:
            each_ran = (now - self._updated) / len(self._passes)
            for each in self._passes:
                each.left -= each_ran
        self._updated = now

    def _wait(self) -> None:
        """Set the timer for the first pass that will be over, in place of the last one."""
        if not self._passes:
            return
        self._timer += 1
        timer, first = self._timer, min(self._passes, key=lambda each: each.left)

        def over() -> None:
            if timer == self._timer:
                self._update()
                self._passes.remove(first)
                self._wait()
                first.then()

        self._clock.at(self._clock.now + first.left * len(self._passes), over)
