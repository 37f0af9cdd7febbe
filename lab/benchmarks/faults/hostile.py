"""A whole verifier in virtual time, behind a network that loses, cuts, repeats and delays messages.

The verifier is the application that ships, asked as a server asks it (ASGI). Its engine runs between the events of a
loop whose clock jumps, and the client's thread runs the loop while it waits. So there is no other thread, and a seed
decides all that happens.
"""

import asyncio
import random
import selectors
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
from starlette.types import Message

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
from verifier_server.generation.draft_model import lookup_alone
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.loading import LoadedModels
from verifier_server.settings import Settings

URL = "http://127.0.0.1:8000"
IN_A_ROW = 3  # requests that may fail in a row: the client gives up after six
FATES = ("unreachable", "lost", "late", "unanswered", "twice", "cut", "refused", "killed")
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


class Verifier:
    """A verifier of one model."""

    def __init__(self, clock: Clock, script: Script, slots: int, fails: Callable[[], bool]) -> None:
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

    def kill(self) -> None:
        for each in self.requests:
            each.cancel()


class Exchange(httpx.SyncByteStream):
    """One request to a verifier, and the body of its reply, which breaks off after so many parts (None: never)."""

    breaks_after: int | None = None

    def __init__(self, clock: Clock, verifier: Verifier, request: httpx.Request, broken: Callable[[], object]) -> None:
        """`broken`: called when the body breaks off."""
        self._clock, self._broken, self._left = clock, broken, asyncio.Event()
        self._asked: list[Message] = [{"type": "http.request", "body": request.read(), "more_body": False}]
        self._parts: asyncio.Queue[Message | BaseException | None] = asyncio.Queue()
        scope: Message = {
            **{"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1"},
            **{"method": request.method, "scheme": "http", "root_path": "", "path": request.url.path},
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            **{"client": ("127.0.0.1", 50_000), "server": ("127.0.0.1", 8000)},
        }
        task = clock.create_task(self._run(verifier, scope))
        verifier.requests.add(task)
        task.add_done_callback(verifier.requests.discard)

    async def _run(self, verifier: Verifier, scope: Message) -> None:
        over: BaseException | None = None
        try:
            await verifier.app(scope, self._receive, self._parts.put)
        except BaseException as error:
            over = error
        self._parts.put_nowait(over)

    async def _receive(self) -> Message:
        if self._asked:
            return self._asked.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    def next_message(self) -> Message | None:
        """The next message of the reply; None: it is over. Raises ReadError, and what the application raised."""
        part = self._clock.run_until_complete(self._parts.get())
        if isinstance(part, asyncio.CancelledError):
            raise httpx.ReadError("the verifier was killed")
        if isinstance(part, BaseException):
            raise AssertionError("the application raised an error") from part
        return part

    def __iter__(self) -> Iterator[bytes]:
        while (message := self.next_message()) is not None:
            if self.breaks_after == 0:
                self._broken()
                self.close()
                raise httpx.ReadError("the connection broke in the middle of the reply")
            if self.breaks_after is not None:
                self.breaks_after -= 1
            yield bytes(message.get("body", b""))

    def close(self) -> None:
        """The client's connection is gone."""
        self._left.set()


class Address(httpx.BaseTransport):
    """The network to a verifier, and the address at which one verifier follows another."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        self.clock = Clock()
        self._chance = rng.choice([0.0, 0.05, 0.2, 0.5])  # that a request fails
        self._kills = [rng.uniform(0.0, 4.0) for _ in range(rng.choice([0, 1, rng.randint(2, 8)]))]  # when, in seconds
        self._fates = rng.sample(FATES, rng.randint(1, len(FATES)))
        self._failing = rng.choice([0.0, 0.0, 0.0, 0.02])  # share of passes
        self._changes = rng.choice([0, 0, 0, 0, 1])  # times that another model takes the address
        self._slots = rng.randint(1, 4)
        self._failed = self._away = 0  # requests in a row that failed; that will find nobody
        self.hostile = False
        self.events: list[str] = []
        self.engine_failures = 0
        self.models = [Script(seed=rng.randrange(3), end_bias=rng.choice([-100.0, 3.0]))]
        self.verifiers = [self._another()]

    def begin(self) -> None:
        """Be hostile from now on."""
        self.hostile = True
        for after in self._kills:
            self.clock.call_later(after, self._kill)

    def _another(self) -> Verifier:
        return Verifier(self.clock, self.models[-1], self._slots, self._pass_fails)

    def _pass_fails(self) -> bool:
        fails = self.hostile and self._rng.random() < self._failing
        self.engine_failures += fails
        return fails

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        rng, clock = self._rng, self.clock
        fate = self._fate(request.method) if self.hostile else ""
        # Session ids are not drawn by the seed.
        path = "/sessions/…" if request.url.path.startswith("/sessions/") else request.url.path
        self.events.append(f"{clock.now:.3f} {request.method} {path} {fate}".rstrip())
        clock.let_pass(rng.choice([0.0, rng.uniform(0.0, 0.2)]))
        if fate in ("unreachable", "away"):
            raise httpx.ConnectError("nobody is there")
        if fate == "refused":
            return httpx.Response(502, content=b"<html>Bad Gateway</html>", headers={"Server": "a proxy"})
        if fate == "late":
            clock.call_later(rng.uniform(0.0, 1.0), self._forgotten, request, self.verifiers[-1])
        if fate in ("lost", "late"):
            raise httpx.ReadError("the connection broke")
        if fate == "twice":
            self._forgotten(request, self.verifiers[-1])

        def broken() -> None:
            if fate == "killed":
                self._kill()

        exchange = Exchange(clock, self.verifiers[-1], request, broken)
        if fate == "unanswered" or (fate == "killed" and rng.random() < 0.5):
            clock.let_pass(rng.uniform(0.0, 0.5))
            broken()
            exchange.close()
            raise httpx.ReadError("the connection broke")
        head = exchange.next_message()
        assert head is not None
        if fate in ("cut", "killed"):
            exchange.breaks_after = rng.choice([0, 1, rng.randint(2, 20)])
        return httpx.Response(head["status"], headers=head["headers"], stream=exchange)

    def _fate(self, method: str) -> str:
        """The fault of a request; empty: it is answered."""
        rng = self._rng
        if self._away:
            self._away -= 1
            return "away"
        if rng.random() >= self._chance or (method == "POST" and self._failed == IN_A_ROW):
            self._failed = 0 if method == "POST" else self._failed
            return ""
        self._failed += method == "POST"
        return rng.choice(self._fates)

    def _forgotten(self, request: httpx.Request, verifier: Verifier) -> None:
        """The request arrives, but the client does not wait for the reply."""
        if verifier is self.verifiers[-1]:
            Exchange(self.clock, verifier, request, lambda: None).close()

    def _kill(self) -> None:
        """Kill the verifier, unless all is over; another one takes its place."""
        if not self.hostile:
            return
        self.verifiers[-1].kill()
        if self._changes:
            self._changes -= 1
            last = self.models[-1]
            self.models.append(Script(seed=(last.seed + 1) % 3, end_bias=last.end_bias))
        self.verifiers.append(self._another())
        self._away = self._rng.randint(0, 3)
        self.events.append(f"{self.clock.now:.3f} killed; {self.models[-1].seed} answers after {self._away} requests")

    def settle(self) -> None:
        """Let sessions expire, and check that no state of the texts remains."""
        self.hostile = False
        self.clock.let_pass(5.0)
        verifier = self.verifiers[-1]
        assert not verifier.requests, f"{len(verifier.requests)} requests go on, and nobody waits for them"
        self.clock.let_pass(TTL + 1.0)
        verifier.service.sessions.expire()
        self.clock.let_pass(1.0)
        verifier.engine.step()
        verifier.engine.check_integrity()
        state = verifier.engine.state
        assert len(verifier.service.sessions) == 0, "sessions are left"
        assert (state.slots_in_use, state.waiting) == (0, 0), f"left of the texts: {state}"

    def close(self) -> None:
        for each in self.verifiers:
            each.kill()
        self.clock.let_pass(0.0)
        self.clock.close()
