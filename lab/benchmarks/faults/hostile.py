"""The network to a verifier in virtual time, which loses, cuts, repeats and delays what is sent; and an address.

The verifier is asked as a server asks it (ASGI). The client's thread runs the loop while it waits.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
from starlette.types import Message

from backends.scripted import Script
from lab.benchmarks.faults.whole_verifier import TTL, Clock, Verifier

URL = "http://127.0.0.1:8000"
IN_A_ROW = 3  # requests that may fail in a row: the client gives up after six
FATES = ("unreachable", "lost", "late", "unanswered", "twice", "cut", "refused", "killed")
_END, _BROKEN = object(), object()


class Exchange:
    """One request to a verifier, and the parts of its reply as they come."""

    def __init__(self, clock: Clock, verifier: Verifier, request: httpx.Request) -> None:
        self._clock, self._body, self._left = clock, request.read(), asyncio.Event()
        self._parts: asyncio.Queue[object] = asyncio.Queue()
        self._asked = False
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8000),
        }
        task = clock.create_task(self._run(verifier, scope))
        verifier.requests.add(task)
        task.add_done_callback(verifier.requests.discard)

    async def _run(self, verifier: Verifier, scope: Message) -> None:
        try:
            await verifier.app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            self._parts.put_nowait(_BROKEN)
        except BaseException as error:
            self._parts.put_nowait(error)
        else:
            self._parts.put_nowait(_END)

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._parts.put_nowait(message)

    def leave(self) -> None:
        """The client's connection is gone."""
        self._left.set()

    def part(self) -> Message | None:
        """The next message of the reply; None: it is over. Raises ReadError, and what the application raised."""
        part = self._clock.run_until_complete(self._parts.get())
        if isinstance(part, dict):
            return part
        if part is _END:
            return None
        if isinstance(part, BaseException):
            raise AssertionError("the application raised an error") from part
        raise httpx.ReadError("the verifier was killed")


@dataclass
class _Reply(httpx.SyncByteStream):
    """The body of a reply, which breaks off after some parts (None: never), as `broken` says."""

    exchange: Exchange
    parts: int | None
    broken: Callable[[], object]

    def __iter__(self) -> Iterator[bytes]:
        while (message := self.exchange.part()) is not None:
            if self.parts == 0:
                self.broken()
                self.exchange.leave()
                raise httpx.ReadError("the connection broke in the middle of the reply")
            if self.parts is not None:
                self.parts -= 1
            body = message.get("body", b"")
            assert isinstance(body, bytes)
            yield body

    def close(self) -> None:
        self.exchange.leave()


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
        rng = self._rng
        fate = self._fate(request.method) if self.hostile else ""
        self.events.append(f"{self.clock.now:.3f} {request.method} {_without_id(request.url.path)} {fate}".rstrip())
        self.clock.let_pass(rng.choice([0.0, rng.uniform(0.0, 0.2)]))
        if fate in ("unreachable", "away"):
            raise httpx.ConnectError("nobody is there")
        if fate == "refused":
            return httpx.Response(502, content=b"<html>Bad Gateway</html>", headers={"Server": "a proxy"})
        if fate == "late":
            self.clock.call_later(rng.uniform(0.0, 1.0), self._forgotten, request, self.verifiers[-1])
        if fate in ("lost", "late"):
            raise httpx.ReadError("the connection broke")
        if fate == "twice":
            self._forgotten(request, self.verifiers[-1])
        exchange = Exchange(self.clock, self.verifiers[-1], request)
        if fate == "unanswered" or (fate == "killed" and rng.random() < 0.5):
            self.clock.let_pass(rng.uniform(0.0, 0.5))
            self._break(fate)
            exchange.leave()
            raise httpx.ReadError("the connection broke")
        head = exchange.part()
        assert head is not None and isinstance(head["status"], int)
        parts = rng.choice([0, 1, rng.randint(2, 20)]) if fate in ("cut", "killed") else None
        return httpx.Response(
            head["status"],
            headers=head["headers"],
            stream=_Reply(exchange, parts, lambda: self._break(fate)),
        )

    def _fate(self, method: str) -> str:
        """What becomes of a request; empty: it is answered."""
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
        """The request arrives, and nobody waits for the answer."""
        if verifier is self.verifiers[-1]:
            Exchange(self.clock, verifier, request).leave()

    def _break(self, fate: str) -> None:
        """What happens besides when a connection breaks."""
        if fate == "killed":
            self._kill()

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
        """Let sessions expire, and check that nothing is left of the texts."""
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


def _without_id(path: str) -> str:
    """A path as it is the same each time: session ids are not drawn by the seed."""
    return "/sessions/…" if path.startswith("/sessions/") else path
