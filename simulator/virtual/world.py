"""A verifier in virtual time: its decisions are the real ones; time, network and costs are modelled.

The scheduler, the sessions and the acceptance of drafts are the verifier's own. A pass takes the time of a cost model,
messages take the time of a modelled link, and the clock jumps from event to event. The time that the programs
themselves take is left out.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from specpair.engines.backend import Backend
from specpair.engines.errors import BackendError
from specpair.protocol.errors import SpecPairError
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.requests import Answer, OnAnswer
from verifier_server.engine.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Network:
    """A link, the same both ways. Times in seconds."""

    rtt: float = 0.0
    jitter: float = 0.0  # mean of the random delay that is added to each message
    loss: float = 0.0  # share of messages, 0 to 1, that are lost with their connection, and sent again
    outages: tuple[tuple[float, float], ...] = ()  # (start, end): every message sent in between is lost

    def takes(self, now: float, rng: random.Random) -> float | None:
        """Seconds that a message sent at `now` takes; None: it is lost."""
        if any(start <= now < end for start, end in self.outages) or rng.random() < self.loss:
            return None
        return self.rtt / 2 + (rng.expovariate(1.0 / self.jitter) if self.jitter else 0.0)


class World:
    """A verifier and the clock of all parties. Times in seconds."""

    def __init__(
        self, backend: Backend, cost: Callable[[BatchPlan], float], *, check: bool = False, **options: object
    ) -> None:
        """`cost`: seconds of a verifier pass by its plan.
        `check`: whether to check the scheduler after every event.
        `options`: further arguments of the `Scheduler`.
        """
        self.backend = backend
        self.scheduler = Scheduler(backend, **options)  # type: ignore[arg-type]
        self.now = 0.0
        self.plans: list[tuple[float, BatchPlan]] = []  # of each verifier pass, when it began and its plan
        self._cost, self._check = cost, check
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._busy = False

    def at(self, when: float, do: Callable[[], object]) -> None:
        """Call `do` at time `when`, or now if that is past."""
        heapq.heappush(self._events, (max(when, self.now), next(self._order), do))

    def run(self, until: float = float("inf"), done: Callable[[], bool] = lambda: False) -> None:
        """Run the events in order, until there are none, up to time `until`, or until `done()` is true."""
        while self._events and self._events[0][0] <= until and not done():
            self.now, _, do = heapq.heappop(self._events)
            do()
            self.look()

    def look(self) -> None:
        """Begin the next verifier pass if one is due, as the engine thread does after every event."""
        if self._check:
            self.scheduler.check_integrity()
        if self._busy:
            return
        plan = self.scheduler.plan(self.now)
        if plan is None:
            if self.scheduler.wake_at is not None:
                assert self.scheduler.wake_at > self.now, "it would never sleep"
                self.at(self.scheduler.wake_at, lambda: None)
            return
        began = self.now
        self.plans.append((began, plan))
        try:
            logits = self.backend.extend(plan.batch)
        except BackendError as error:
            self.scheduler.failed(plan, error)
            self.at(self.now, lambda: None)
            return
        self._busy = True

        def over() -> None:
            self._busy = False
            self.scheduler.conclude(plan, logits, began, self.now)

        self.at(began + self._cost(plan), over)


def or_raise(then: Callable[[Answer], None]) -> OnAnswer:
    """Pass answers on to `then`, and raise errors."""

    def done(result: Answer | SpecPairError) -> None:
        if isinstance(result, SpecPairError):
            raise result
        then(result)

    return done
