"""A whole verifier in virtual time, in one process or with fronts.

It is the application that ships, asked as a server asks it (ASGI). Its engine runs between the events of a loop whose
clock jumps, so there is no other thread.
"""

import asyncio
import pickle
import selectors
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Send

from backends.scripted import Script
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineFailure
from specpair.speculation.policy.cost_by_width import CostByWidth
from tests.specpair.speculation.policy.virtual_pair import Toy
from verifier_server.app import create_app
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.engine import Engine
from verifier_server.engine.interface import EngineInfo
from verifier_server.engine.scheduler import Scheduler
from verifier_server.fronts.channel import Link
from verifier_server.fronts.front import Front
from verifier_server.fronts.fronts import Fronts, fronts_of
from verifier_server.generation.draft_model import lookup_alone
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.loading import LoadedModels
from verifier_server.settings import ListenAddress, Settings

PASS_TIMES = [0.02 + 0.001 * tokens for tokens in range(1, 18)]  # seconds
TTL = 60.0  # seconds that a session is kept
Answers = Callable[[Any], Awaitable[None]]


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next event. Raises RuntimeError where nothing will ever happen."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: object, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Make the call at once: a thread would run in real time."""
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
        if not ready and timeout is None:
            raise RuntimeError("all tasks wait, and no event is due")
        if not ready and timeout:
            self._clock.now += timeout
        return ready


class _Paced(Toy):
    """A toy model whose passes take virtual time, and fail at the world's rate."""

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


class _Wire:
    """A link within the loop: a message arrives in the loop's next turn."""

    def __init__(self, clock: Clock, received: Callable[[Any], object]) -> None:
        self.other = self
        self._clock, self._received, self._open = clock, received, True

    def send(self, message: Any) -> None:
        if self._open:
            self._clock.call_soon(self.other.arrive, pickle.dumps(message))

    def arrive(self, content: bytes) -> None:
        if self._open:
            self._received(pickle.loads(content))

    def close(self) -> None:
        self._open = False


class _Serving:
    """A front of a verifier, with the engine's side of it."""

    def __init__(self, clock: Clock, fronts: Fronts) -> None:
        self.requests = set[asyncio.Task[None]]()  # under way
        self._clock, self._answering = clock, fronts.requests()
        self.app = Front(fronts.options, self._connect, lambda: None)
        clock.create_task(self.app.connect())

    async def _connect(self, received: Callable[[Any], object], _: Callable[[], object]) -> Link:
        near, far = _Wire(self._clock, received), _Wire(self._clock, self._answering.received)
        near.other, far.other = far, near
        self._answering.connected(far)
        return near

    def kill(self) -> None:
        for each in self.requests:
            each.cancel()
        self._clock.create_task(self._answering.close())


class Verifier:
    """A verifier of one model, with so many fronts (0: in one process)."""

    def __init__(self, clock: Clock, script: Script, slots: int, fails: Callable[[], bool], fronts: int) -> None:
        settings = Settings(backend="scripted", access_log=False, session_ttl=TTL)
        backend = _Paced(script, slots=slots)
        backend.clock = clock
        self.app = create_app(settings, backend, clock=clock.time)
        self.service = service = self.app.state.service
        service.sessions.admission.clock = clock.time
        service.engine_client.attach(clock)
        deliver = service.engine_client.deliver
        scheduler = Scheduler(backend, max_drafts=settings.max_drafts, pass_times=PASS_TIMES)
        self.engine = _Between(scheduler, clock, deliver)
        lookup = lookup_alone(settings, EngineInfo.of(backend, settings.max_drafts), clock.time)
        drafting = ServerDrafting(lookup, PASS_TIMES, clock.time, deliver)
        service.loader.models = LoadedModels(
            self.engine, backend.model_name, CostByWidth.of(PASS_TIMES), None, drafting
        )
        backend.fails = fails
        self.requests: set[asyncio.Task[None]] = set()  # under way
        self._clock, self._before = clock, fronts_of(self.app, settings, ListenAddress(), lambda: None)
        self._fronts = [_Serving(clock, self._before) for _ in range(fronts)]

    def ask(self, scope: Message, receive: Receive, send: Send, front: int) -> None:
        """Ask for the reply to a request. `front`: chooses the front that gets it."""
        serving = self._fronts[front % len(self._fronts)] if self._fronts else None
        served = self._run(self.app if serving is None else serving.app, scope, receive, send)
        task = self._clock.create_task(served)
        for under_way in (self.requests, *(() if serving is None else (serving.requests,))):
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    async def _run(
        self, app: ASGIApp, scope: Message, receive: Receive, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        over: BaseException | None = None
        try:
            await app(scope, receive, send)
        except BaseException as error:
            over = error
        await send(over)

    def kill(self) -> None:
        for each in self.requests:
            each.cancel()
        for serving in self._fronts:
            serving.kill()

    def kill_front(self, front: int) -> None:
        """Kill a front, if there are any; another one takes its place."""
        if self._fronts:
            at = front % len(self._fronts)
            self._fronts[at].kill()
            self._fronts[at] = _Serving(self._clock, self._before)
