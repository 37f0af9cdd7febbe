"""A network that loses, cuts, repeats and delays messages, to a verifier in virtual time.

The client's thread runs the verifier's loop while it waits. So there is no other thread, and a seed decides all that
happens.
"""

import asyncio
import random
from collections.abc import Callable, Iterator

import httpx
from starlette.types import Message

from backends.scripted import Script
from lab.benchmarks.faults.virtual_verifier import TTL, Clock, Verifier

URL = "http://127.0.0.1:8000"
IN_A_ROW = 3  # requests that may fail in a row: the client gives up after six
FATES = ("unreachable", "lost", "late", "unanswered", "twice", "cut", "refused", "killed")


class Exchange(httpx.SyncByteStream):
    """One request to a verifier, and the body of its reply, which breaks off after so many parts (None: never)."""

    breaks_after: int | None = None

    def __init__(
        self, clock: Clock, verifier: Verifier, request: httpx.Request, broken: Callable[[], object], front: int
    ) -> None:
        """`broken`: called when the body breaks off. `front`: as for `Verifier.ask`."""
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
        verifier.ask(scope, self._receive, self._parts.put, front)

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
        self._slots, self._fronts = rng.randint(1, 4), rng.choice([0, 0, 1, 3])
        self._front_kills = [rng.uniform(0.0, 4.0) for _ in range(rng.choice([0, 2, 8]))]  # when, in seconds
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
        for after in self._front_kills:
            self.clock.call_later(after, self._kill_front)

    def _another(self) -> Verifier:
        return Verifier(self.clock, self.models[-1], self._slots, self._pass_fails, self._fronts)

    def _kill_front(self) -> None:
        if self.hostile and self._fronts:
            self.verifiers[-1].kill_front(self._rng.randrange(self._fronts))
            self.events.append(f"{self.clock.now:.3f} a front killed")

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

        exchange = Exchange(clock, self.verifiers[-1], request, broken, rng.randrange(8))
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
            Exchange(self.clock, verifier, request, lambda: None, self._rng.randrange(8)).close()

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
