"""Drafters that connect, crash, stall and return: the seed decides what they do, and all they receive is checked.

Each drafter lives one life after the other. A life is one session: it is opened, and then step after step something is
done with it, until it is deleted or its drafter vanishes. Every step draws from a generator of its own, seeded with
drafter, life and step, so that no timing changes what is chosen next.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.wire import Wire, request
from benchmarks.soak.truth import Fault, Truth, WholeContext
from speculation.acceptance.strategies import common_prefix
from speculation.sampling.sampling import Sampling

MAX_DRAFTS = 16  # of the verifier
_KEPT = 3.0  # seconds for which a connection is used again; the verifier closes it after 75


@dataclass
class Tally:
    """What happened in a soak."""

    requests: int = 0
    tokens: int = 0  # received and compared
    happened: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds that a response took


@dataclass
class Soak:
    """What all drafters of a soak share."""

    address: tuple[str, int]
    seed: int
    ttl: float  # of sessions, as the verifier was told
    model: WholeContext  # whose text is the truth
    tally: Tally
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def rng(self, *names: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *names))))

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless the soak is over sooner."""
        try:
            async with asyncio.timeout(seconds):
                await self.over.wait()
        except TimeoutError:
            pass


async def drafter(soak: Soak, number: int) -> None:
    """Live until the soak is over. Whatever the verifier does wrong is noted in the tally."""
    life = 0
    while not soak.over.is_set():
        soak.tally.happened["lives"] += 1
        try:
            await Life(soak, number, life).live()
        except* (Fault, OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as group:
            soak.tally.faults.append(f"drafter {number}, life {life}: {group!r}")
        life += 1


class Life:
    """What one drafter does with one session, whose every response is checked."""

    def __init__(self, soak: Soak, drafter: int, number: int) -> None:
        self._soak, self._id = soak, f"d{drafter}-{number}"
        self._headers = {"X-Session-Id": self._id, "Authorization": f"Bearer {drafter}"}
        rng, self._names = soak.rng(drafter, number, "opening"), (drafter, number)
        common, length = soak.rng("common", rng.randrange(4)), rng.choice([0, rng.randint(20, 200)])
        tail = [rng.randrange(256) for _ in range(rng.randint(0 if length else 1, 30))]
        prompt = [common.randrange(256) for _ in range(200)][:length] + tail  # many begin alike, some are the same
        how = {"seed": rng.randrange(1000), "temperature": rng.choice([0.0, 0.5, 1.0, 2.0])}
        how |= {"top_k": rng.choice([0, 0, 5, 40]), "top_p": rng.choice([1.0, 0.9])} if how["temperature"] else {}
        most = rng.choice([rng.randint(1, 150), 512])
        self.opening = {"prompt_ids": prompt, "max_tokens": most, "self_continue": rng.random() < 0.5, **how}
        self._truth = Truth(soak.model, prompt, Sampling(**how), most)  # type: ignore[arg-type]
        self._known = 0  # tokens received
        self._heard: float | None = None  # when the last request was sent that has been answered
        self._deleted = self._over = self._lost = False
        self._kept: tuple[Wire, float] | None = None

    async def live(self) -> None:
        try:
            await self._open()
            for step in range(self._rng("birth").randint(3, 40)):
                if self._over or self._soak.over.is_set():
                    break
                if self._lost:
                    await self._open()
                rng = self._rng(step)
                [act] = rng.choices(*_ACTS)
                await act(self, rng)
                await self._soak.pause(rng.uniform(0.0, 0.05))
            if not (self._over or self._soak.over.is_set()) and self._rng("death").random() < 0.7:
                await self._delete()
        finally:
            if self._kept is not None:
                self._kept[0].hang_up()

    def _rng(self, *names: object) -> random.Random:
        return self._soak.rng(*self._names, *names)

    def _must_know(self, heard: float | None) -> bool:
        """Whether the verifier must still have the session, last `heard` of at that time."""
        return heard is not None and not self._deleted and time.monotonic() - heard < self._soak.ttl

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Wire]:
        """The kept connection, if it is free and fresh, or a new one; closed unless it is kept again."""
        kept, self._kept = self._kept, None
        if kept is not None and time.monotonic() - kept[1] > _KEPT:
            kept[0].hang_up()
            kept = None
        wire = kept[0] if kept is not None else await Wire.open(self._soak.address)
        try:
            yield wire
        finally:
            if self._kept is None or self._kept[0] is not wire:
                wire.hang_up()

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """A success; None where the verifier is overloaded, or may have forgotten the session. Raises Fault."""
        sent, heard, tally = time.monotonic(), self._heard, self._soak.tally
        async with self._connection() as wire:
            reply = await wire.ask(request(method, path, body, self._headers))
            tally.requests += 1
            tally.slowest = max(tally.slowest, time.monotonic() - sent)
            if not reply.last and self._kept is None:
                self._kept = wire, time.monotonic()
        if reply.status == 200:
            self._heard = max(sent, self._heard or 0.0)
            return reply.body
        self._refused(reply.code, heard)
        self._over |= reply.code == "overloaded" and path == "/prefill"
        self._lost |= reply.code == "unknown_session"

    def _refused(self, code: str | None, heard: float | None) -> None:
        if code != "overloaded" and (code != "unknown_session" or self._must_know(heard)):
            raise Fault(f"{self._id}: refused with {code}")
        self._soak.tally.happened[f"refused: {code}"] += 1

    async def _open(self) -> None:
        """Prefill, for the first time or again."""
        heard, known, self._lost = self._heard, self._known, False
        body = await self._ask("POST", "/prefill", self.opening)
        if body is not None:
            if body["session_id"] != self._id or body["prompt_ids"] != self.opening["prompt_ids"]:
                raise Fault(f"{self._id}: opened {body['session_id']} with the prompt {body['prompt_ids']}")
            if self._must_know(heard) and body["total_tokens"] < known:
                raise Fault(f"{self._id}: {known} tokens were committed, now {body['total_tokens']}")
            self._known = body["total_tokens"]
            self._check(self._truth.prompt_len, body)

    async def _verify(self, position: int, drafts: list[int]) -> None:
        body = await self._ask("POST", "/verify", {"position": position, "draft_tokens": drafts, "next_in_ms": 20.0})
        if body is not None:
            self._check(position, body)
            if body["position"] != position or body["accepted_prefix_len"] != common_prefix(body["tokens"], drafts):
                raise Fault(f"{self._id}: {drafts} at {position} was answered with {body}")
            if not body["tokens"] and body["finish_reason"] is None:
                raise Fault(f"{self._id}: no token came from {position} on, and the text has not ended")
            self._known = max(self._known, body["total_tokens"])

    def _check(self, position: int, body: dict[str, Any]) -> None:
        tokens = body["tokens"]
        self._truth.compare(position, tokens, body["total_tokens"], body["finish_reason"], self._id)
        self._soak.tally.tokens += len(tokens)

    def _drafts(self, rng: random.Random, length: int) -> list[int]:
        """The truth from what is known on, with a mistake in it now and then."""
        drafts = self._truth.between(self._known, self._known + length)
        drafts += [rng.randrange(256) for _ in range(length - len(drafts))]
        return [rng.randrange(256) if rng.random() < 0.15 else token for token in drafts]

    async def _draft(self, rng: random.Random) -> None:
        """One draft, or several in flight, each built on the one before or beginning like it; now and then a repeat."""
        self._soak.tally.happened["flights"] += 1
        position, path = self._known, self._drafts(rng, MAX_DRAFTS)
        cuts = rng.choices(range(MAX_DRAFTS + 1), k=rng.choice([1, 1, rng.randint(2, 6)]))
        if rng.random() < 0.7:
            cuts.sort()
        await _together(*(self._verify(position, path[:cut]) for cut in cuts))

    async def _follow(self, rng: random.Random) -> None:
        """Read the stream of tokens while drafting; to the end, or until it is dropped."""
        self._soak.tally.happened["streams"] += 1
        start = rng.randint(self._truth.prompt_len, max(self._truth.prompt_len, self._known))
        events, seconds, again = rng.choice([rng.randint(1, 12), 1000]), rng.uniform(0.5, 4.0), rng.randint(1, 8)

        async def draft() -> None:
            for _ in range(again):
                await self._draft(rng)

        await _together(self._read_stream(start, events, seconds), draft())

    async def _read_stream(self, start: int, events: int, seconds: float) -> None:
        """Read tokens from `start` on, for so many events or seconds, and then reset the connection."""
        heard, position = self._heard, start
        async with self._connection() as wire:
            self._soak.tally.requests += 1
            path = f"/sessions/{self._id}/stream?from={start}"
            refusal = await wire.begin(request("GET", path, None, self._headers))
            if refusal is not None:
                self._refused(refusal.code, heard)
                return
            try:
                async with asyncio.timeout(seconds):
                    async for name, data in wire.events():
                        if name == "error":
                            self._refused(data["error"]["code"], heard)
                            return
                        if name == "end":
                            self._truth.compare(position, [], data["total_tokens"], data["finish_reason"], self._id)
                            return
                        end = position + len(data["tokens"])
                        data |= {"total_tokens": end, "finish_reason": self._truth.ending(end)}
                        self._check(data["position"], data)
                        position, events = end, events - 1
                        if events == 0:
                            break
            except TimeoutError:
                pass  # silence is right while a session waits for drafts
            wire.reset()

    async def _crash(self, rng: random.Random) -> None:
        """Break connections in the middle of requests; then be away for a moment, and perhaps return."""
        self._soak.tally.happened["crashes"] += 1
        body = {"position": self._known, "draft_tokens": self._drafts(rng, 4)}
        for _ in range(rng.randint(1, 3)):
            self._soak.tally.requests += 1
            whole = request("POST", "/verify", body, self._headers)
            async with self._connection() as wire:
                await wire.send(whole[: rng.choice([rng.randrange(len(whole)), len(whole)])])
                if rng.random() < 0.2:
                    await self._soak.pause(rng.expovariate(10.0))
                wire.reset() if rng.random() < 0.5 else wire.hang_up()
        await self._return(rng, rng.uniform(0.0, 1.0), else_over=True)

    async def _stall(self, rng: random.Random) -> None:
        """Silence, now and then for longer than a session is remembered."""
        self._soak.tally.happened["stalls"] += 1
        long = rng.random() < 0.15
        seconds = self._soak.ttl * rng.uniform(0.9, 1.5) if long else rng.uniform(0.3, 3.0)
        await self._return(rng, seconds, else_over=False)

    async def _return(self, rng: random.Random, seconds: float, else_over: bool) -> None:
        """Be away; then, in half of the cases, open the session again."""
        await self._soak.pause(seconds)
        if rng.random() < 0.5 and not self._soak.over.is_set():
            self._soak.tally.happened["returns"] += 1
            await self._open()
        else:
            self._over |= else_over

    async def _delete_in_flight(self, rng: random.Random) -> None:
        """Delete the session while it is drafted for and streamed."""
        self._soak.tally.happened["deleted in flight"] += 1
        start = self._truth.prompt_len

        async def delete() -> None:
            await self._soak.pause(rng.uniform(0.0, 0.05))
            await self._delete()

        await _together(delete(), self._draft(self._rng("last")), self._read_stream(start, 1000, 8.0))

    async def _delete(self) -> None:
        self._deleted = self._over = True
        await self._ask("DELETE", f"/sessions/{self._id}")


_WEIGHTS: dict[Callable[[Life, random.Random], Awaitable[None]], int] = {
    **{Life._draft: 60, Life._follow: 8, Life._stall: 8, Life._crash: 5, Life._delete_in_flight: 1}
}
_ACTS = (list(_WEIGHTS), list(_WEIGHTS.values()))


async def _together(*doing: Coroutine[Any, Any, None]) -> None:
    """Do all at once; what fails ends the others."""
    async with asyncio.TaskGroup() as group:
        for each in doing:
            group.create_task(each)
