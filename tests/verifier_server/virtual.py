"""The scheduler in virtual time: a clock that jumps from event to event, passes that take what a cost model says."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from backends.contract import BackendError
from backends.scripted import Script, ScriptedBackend
from speculation.acceptance import Strategy
from speculation.errors import SpecPairError
from speculation.sampling import Sampling
from verifier_server.jobs import Answer, Job
from verifier_server.plan import Plan
from verifier_server.scheduler import Scheduler
from verifier_server.sessions import Session


def linear(plan: Plan) -> float:
    """Seconds of a pass: 25 ms to decode, and 0.2 ms a token."""
    return 0.025 + 0.0002 * plan.tokens


PASS_MS = [25.2 + 0.2 * tokens for tokens in range(17)]  # what `linear` comes to, as tried at the start


def fed(plan: Plan) -> dict[str, int]:
    """How many tokens a pass feeds for each session, in its order."""
    return {part.seat.session.id: len(entry.tokens) for part, entry in zip(plan.parts, plan.batch, strict=True)}


class World:
    """A scheduler over a toy model. Whatever happens is an event; the books are checked after each."""

    def __init__(
        self,
        backend: ScriptedBackend | None = None,
        cost: Callable[[Plan], float] = linear,
        check: bool = True,
        **options: Any,
    ) -> None:
        self.backend = backend or ScriptedBackend(Script(seed=3), rows=8, context_length=4096)
        self.scheduler = Scheduler(self.backend, **{"pass_ms": PASS_MS, **options})
        self.now = 0.0
        self.plans: list[tuple[float, Plan]] = []  # when each began
        self._cost, self._check = cost, check
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._busy = False
        self._opened = 0

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._events, (when, next(self._order), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.at(self.now + seconds, do)

    def run(self, until: float) -> None:
        """Let time pass up to `until`."""
        self._look()
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
            self._look()
        self.now = until

    def _look(self) -> None:
        """What an engine thread does when it wakes."""
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
            self.scheduler.failed(plan, error, self.now)
            self.after(0.0, lambda: None)
            return
        self._busy = True

        def over() -> None:
            self._busy = False
            self.scheduler.conclude(plan, logits, began, self.now)

        self.after(self._cost(plan), over)

    def open(
        self,
        prompt: list[int],
        *,
        max_tokens: int = 10_000,
        sampling: Sampling = Sampling(),
        strategy: Strategy = Strategy.COUPLED,
        self_continue: bool = False,
    ) -> Session:
        self._opened += 1
        limit = min(len(prompt) + max_tokens, self.backend.context_length)
        name = f"session-{self._opened}"
        return Session(name, list(prompt), len(prompt), sampling, strategy, limit, self_continue=self_continue)

    def ask(
        self,
        session: Session,
        position: int | None = None,
        drafts: tuple[int, ...] | list[int] = (),
        then: Callable[[Answer], None] | None = None,
        **options: Any,
    ) -> Job:
        """Submit a guess now; `then` is called with its answer, errors are raised where there is no `failed`."""
        failed: Callable[[SpecPairError], None] | None = options.pop("failed", None)

        def done(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError):
                if failed is None:
                    raise result
                failed(result)
            elif then is not None:
                then(result)

        job = Job(session, len(session.tokens) if position is None else position, list(drafts), done, **options)
        self.scheduler.submit(job, self.now)
        return job
