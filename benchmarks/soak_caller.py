"""One drafter's requests: over connections kept or new, whole or cut, and which errors were to be expected."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from backends.scripted import ScriptedBackend
from benchmarks.soak_truth import Fault, Memory, Tally
from benchmarks.soak_wire import Reply, Wire, request

CONTEXT, MAX_DRAFTS, MAX_BODY = 512, 16, 65536  # of the verifier
_KEPT = 3.0  # seconds that a connection is used again; the verifier closes it after 75


@dataclass
class Soak:
    """What all drafters of a soak share."""

    address: tuple[str, int]
    seed: int
    ttl: float  # of sessions, as the verifier was told
    model: ScriptedBackend  # whose text is the truth
    tally: Tally
    over: asyncio.Event

    def rng(self, *names: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *names))))

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless the soak is over sooner."""
        try:
            async with asyncio.timeout(seconds):
                await self.over.wait()
        except TimeoutError:
            pass


class Caller:
    """Asks on behalf of one session."""

    def __init__(self, soak: Soak, drafter: int, name: str) -> None:
        self._soak, self._tally, self._name = soak, soak.tally, name
        self._id: str | None = None  # of the session
        self._memory = Memory(soak.ttl)
        self._lost = False  # whether the verifier had forgotten the session
        # Who sends no id is told apart by key and address, so that each drafter has a key.
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {drafter}"}
        self._kept: tuple[Wire, float] | None = None

    def close(self) -> None:
        """Hang up."""
        if self._kept is not None:
            self._kept[0].hang_up()

    async def begin_stream(self, wire: Wire, sent: bytes) -> Reply | None:
        """None once the events begin; otherwise the refusal."""
        self._tally.requests += 1
        await wire.send(sent)
        status, headers = await wire.head()
        return None if status == 200 else await wire.rest(status, headers)

    async def ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | bytes | None,
        *,
        allowed: Collection[str] = (),
        named: bool = True,
    ) -> dict[str, Any] | None:
        """A success; None for an error that was to be expected. `named`: for this session, by the header."""
        headers = {**self._headers, "X-Session-Id": str(self._id)} if named else self._headers
        content = body if isinstance(body, bytes) or body is None else encoded(body)
        sent, heard = time.monotonic(), self._memory.heard
        async with self.connection() as wire:
            reply = await wire.ask(request(method, path, content, headers))
            self._tally.requests += 1
            self._tally.slowest = max(self._tally.slowest, time.monotonic() - sent)
            if not reply.last and self._kept is None:
                self._kept = wire, time.monotonic()
        if reply.status == 200:
            if path in ("/prefill", "/verify"):
                self._memory.touched(sent)
            result: dict[str, Any] = reply.body
            return result
        of_it = path == "/verify" or "/stream" in path
        gone = {"unknown_session"} if of_it and not self._memory.lasts(heard) else set()
        self.tell_error(reply.code, {*allowed, *gone}, reply.status)
        self._lost |= reply.code == "unknown_session" and bool(gone)
        return None

    def tell_error(self, code: str | None, allowed: Collection[str], status: int = 0) -> None:
        """Count an error; raise Fault unless it is allowed. An overload always is."""
        if code not in {*allowed, "overloaded"}:
            raise Fault(f"{self._name}: {status or 'a stream'} said {code}, expected {sorted(allowed) or 'a success'}")
        self._tally.errors[code or ""] += 1

    async def cut(self, rng: random.Random, method: str, path: str, body: dict[str, Any]) -> None:
        """Send a request, or a part of it, and break the connection."""
        self._tally.requests += 1
        headers = {**self._headers, "X-Session-Id": str(self._id)}
        whole = request(method, path, encoded(body), headers)
        how = rng.choice(["in the head", "in the body", "at once", "later", "in the answer"])
        self.count(f"cut {how}")
        head = whole.index(b"\r\n\r\n") + 4
        async with self.connection() as wire:
            if how == "in the head":
                await wire.send(whole[: rng.randrange(head)])
            elif how == "in the body":
                await wire.send(whole[: rng.randrange(head, len(whole))])
            else:
                await wire.send(whole)
            if how == "later":
                await self._soak.pause(rng.expovariate(10.0))
            elif how == "in the answer":
                await wire.some()
            wire.reset() if rng.random() < 0.5 else wire.hang_up()

    @asynccontextmanager
    async def connection(self, buffer: int | None = None) -> AsyncIterator[Wire]:
        """The connection that was kept, if it is free and fresh, or a new one; ended unless kept again."""
        wire, since = (None, 0.0) if self._kept is None or buffer is not None else self._kept
        if wire is not None:
            self._kept = None
            if time.monotonic() - since > _KEPT:
                wire.hang_up()
                wire = None
        wire = wire or await Wire.open(self._soak.address, buffer)
        try:
            yield wire
        finally:
            if self._kept is None or self._kept[0] is not wire:
                wire.hang_up()

    def count(self, what: str) -> None:
        self._tally.happened[what] += 1


def encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
