"""A whole verifier in virtual time: the application that ships, on a loop whose clock jumps.

Its engine runs between the events of the loop, so there is no thread, and a seed decides all that happens.
"""

import asyncio
import selectors
from collections.abc import Callable, Sequence
from typing import Any

from backends.scripted import Script
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineFailure
from specpair.speculation.policy.cost_by_width import CostByWidth
from tests.specpair.speculation.policy.virtual_pair import Toy
from verifier_server.app import create_app
from verifier_server.engine.engine import Engine
from verifier_server.engine.port import EngineInfo
from verifier_server.engine.requests import Request
from verifier_server.engine.scheduler import Scheduler
from verifier_server.generation.draft_model import lookup_alone
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.loading import LoadedModels
from verifier_server.settings import Settings

PASS_TIMES = [0.02 + 0.001 * tokens for tokens in range(1, 18)]  # seconds
TTL = 60.0  # seconds that a session is kept


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next event. Raises RuntimeError where nothing will ever happen."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: object, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Make the call at once: a thread would take its own time."""
        future = self.create_future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def let_pass(self, seconds: float) -> None:
        self.run_until_complete(asyncio.sleep(seconds))


class _Jumping(selectors.SelectSelector):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will happen")
        self._clock.now += timeout
        return []


class _Paced(Toy):
    """A toy model whose passes take virtual time, and fail as often as the world says."""

    clock: Clock
    fails: Callable[[], bool] = staticmethod(lambda: False)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.clock.now += PASS_TIMES[min(sum(len(entry.tokens) for entry in batch), len(PASS_TIMES)) - 1]
        if self.fails():
            raise EngineFailure("a device went away")
        return super()._forward(batch)


class _Between(Engine):
    """An engine without a thread: it runs its passes between the events of the loop."""

    def __init__(self, scheduler: Scheduler, clock: Clock, deliver: Callable[[], None]) -> None:
        super().__init__(scheduler, clock.time, deliver)
        self._loop, self._plans = clock, scheduler

    def submit(self, *requests: Request) -> None:
        super().submit(*requests)
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self.step():
            self._loop.call_soon(self._turn)
        elif self._plans.wake_at is not None:
            self._loop.call_at(self._plans.wake_at, self._turn)


class Verifier:
    """A verifier of one model."""

    def __init__(self, clock: Clock, script: Script, slots: int, fails: Callable[[], bool]) -> None:
        settings = Settings(backend="scripted", access_log=False, session_ttl=TTL)
        backend = _Paced(script, slots=slots)
        backend.clock = clock
        self.app = create_app(settings, backend, clock=clock.time)
        self.service = service = self.app.state.service
        service.sessions.clock = clock.time
        service.engine_client.attach(clock)
        deliver = service.engine_client.deliver
        scheduler = Scheduler(backend, max_drafts=settings.max_drafts, pass_times=PASS_TIMES)
        self.engine = _Between(scheduler, clock, deliver)
        lookup = lookup_alone(settings, EngineInfo.of(backend, settings.max_drafts), clock.time)
        predicting = ServerDrafting(lookup, PASS_TIMES, clock.time, deliver)
        service.loader.models = LoadedModels(
            self.engine, backend.model_name, CostByWidth.of(PASS_TIMES), None, predicting
        )
        backend.fails = fails
        self.requests: set[asyncio.Task[None]] = set()  # under way

    def kill(self) -> None:
        for each in self.requests:
            each.cancel()
