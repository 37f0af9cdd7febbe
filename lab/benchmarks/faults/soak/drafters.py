"""Drafters that connect, crash, stall and return: the seed decides what they do, and all they receive is checked.

Each drafter lives one life after the other. A life is one session: it is opened, and then step after step something is
done with it, until it is deleted or its drafter vanishes. Every step draws from a generator of its own, seeded with
drafter, life and step, so that no timing changes what is chosen next.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from lab.benchmarks.faults.machines import Held
from lab.benchmarks.faults.soak.verifier import Fault, Truth, WholeContext
from lab.benchmarks.faults.soak.wire import Wire, request
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling

MAX_DRAFTS = 16  # of the verifier


class Sample(NamedTuple):
    """The verifier at one moment."""

    at: float  # seconds since the start
    process: Held
    held: dict[str, Any]  # as `/soak` says


@dataclass
class Soak:
    """What all drafters of a soak share, and what happened to them and to the verifier."""

    address: tuple[str, int]
    seed: int
    ttl: float  # of sessions, in seconds, as the verifier was told
    model: WholeContext  # whose text is the truth
    over: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0
    tokens: int = 0  # received and compared
    happened: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds that a response took
    samples: list[Sample] = field(default_factory=list)  # while drafters live
    rest: Sample | None = None  # afterwards

    def quarters(self) -> tuple[list[Sample], list[Sample]]:
        """The second and the last quarter of the samples."""
        quarter = len(self.samples) // 4
        return self.samples[quarter : 2 * quarter], self.samples[-quarter:]

    @property
    def growth(self) -> float:
        """MiB by which the last quarter's median memory exceeds the second's."""
        second, last = (median(sample.process.memory for sample in part) for part in self.quarters())
        return last - second

    def rng(self, *names: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *names))))

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless the soak is over sooner."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), seconds)


async def drafter(soak: Soak, number: int) -> None:
    """Live until the soak is over. Whatever the verifier does wrong is noted in `faults`."""
    life = 0
    while not soak.over.is_set():
        soak.happened["lives"] += 1
        try:
            await Life(soak, number, life).live()
        except* (Fault, OSError, EOFError, TimeoutError) as group:
            soak.faults.append(f"drafter {number}, life {life}: {group!r}")
        life += 1


class Life:
    """What one drafter does with one session."""

    def __init__(self, soak: Soak, drafter: int, number: int) -> None:
        self._soak, self._id, self._names = soak, f"d{drafter}-{number}", (drafter, number)
        self._headers = {"X-Session-Id": self._id, "Authorization": f"Bearer {drafter}"}
        rng = self._rng("opening")
        common, length = soak.rng("common", rng.randrange(4)), rng.choice([0, rng.randint(20, 200)])
        tail = [rng.randrange(256) for _ in range(rng.randint(0 if length else 1, 30))]
        prompt = [common.randrange(256) for _ in range(200)][:length] + tail  # many begin alike, some are the same
        how = {"seed": rng.randrange(1000), "temperature": rng.choice([0.0, 0.5, 1.0, 2.0])}
        how |= {"top_k": rng.choice([0, 0, 5, 40]), "top_p": rng.choice([1.0, 0.9])} if how["temperature"] else {}
        most = rng.choice([rng.randint(1, 150), 512])
        self.opening = {"prompt_ids": prompt, "max_tokens": most, "self_continue": rng.random() < 0.5, **how}
        self._truth = Truth(soak.model, prompt, Sampling(**how), most)  # type: ignore[arg-type]
        self._known = 0  # tokens received
        self._heard = float("-inf")  # when the last request was sent that has been answered
        self.deleted = self._over = self._lost = False

    async def live(self) -> None:
        await self._open()
        for step in range(self._rng("birth").randint(3, 40)):
            if self._lost:
                await self._open()
            if self._over or self._soak.over.is_set():
                return
            rng = self._rng(step)
            [act] = rng.choices([self._draft, self._follow, self._stall, self._crash], [60, 8, 8, 5])
            await act(rng)
            await self._soak.pause(rng.uniform(0.0, 0.05))
        rng = self._rng("death")
        if not self._over and rng.random() < 0.7:
            await together(self._draft(rng), self._delete())

    def _rng(self, *names: object) -> random.Random:
        return self._soak.rng(*self._names, *names)

    def must_know(self, heard: float) -> bool:
        """Whether the verifier must still have the session, last `heard` of at that time."""
        return not self.deleted and time.monotonic() - heard < self._soak.ttl

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """A success; None where the verifier is overloaded, or may have forgotten the session. Raises Fault."""
        sent, heard = time.monotonic(), self._heard
        self._soak.requests += 1
        with closing(await Wire.open(self._soak.address)) as wire:
            reply = await wire.ask(request(method, path, body, self._headers))
        self._soak.slowest = max(self._soak.slowest, time.monotonic() - sent)
        if reply.status == 200:
            self._heard = max(sent, self._heard)
            return reply.body
        self._refused(reply.code, heard)
        self._lost |= reply.code == "unknown_session"
        self._over |= path == "/prefill"

    def _refused(self, code: str | None, heard: float) -> None:
        if code != "overloaded" and (code != "unknown_session" or self.must_know(heard)):
            raise Fault(f"{self._id}: refused with {code}")
        self._soak.happened[f"refused: {code}"] += 1

    async def _open(self) -> None:
        """Prefill, for the first time or again."""
        heard, known, self._lost = self._heard, self._known, False
        body = await self._ask("POST", "/prefill", self.opening)
        if body is not None:
            if body["session_id"] != self._id or body["prompt_ids"] != self.opening["prompt_ids"]:
                raise Fault(f"{self._id}: opened {body['session_id']} with the prompt {body['prompt_ids']}")
            if self.must_know(heard) and body["total_tokens"] < known:
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
        self._soak.tokens += len(tokens)

    def _drafts(self, rng: random.Random, length: int) -> list[int]:
        """The truth from what is known on, with a mistake in it now and then."""
        drafts = self._truth.between(self._known, self._known + length)
        drafts += [rng.randrange(256) for _ in range(length - len(drafts))]
        return [rng.randrange(256) if rng.random() < 0.15 else token for token in drafts]

    async def _draft(self, rng: random.Random) -> None:
        """One draft, or several in flight, each built on the one before or beginning like it; now and then a repeat."""
        self._soak.happened["flights"] += 1
        position, path = self._known, self._drafts(rng, MAX_DRAFTS)
        cuts = rng.choices(range(MAX_DRAFTS + 1), k=rng.choice([1, 1, rng.randint(2, 6)]))
        await together(*(self._verify(position, path[:cut]) for cut in (cuts if cuts[0] % 3 == 0 else sorted(cuts))))

    async def _follow(self, rng: random.Random) -> None:
        """Read the stream of tokens while drafting, for some seconds or events, and then reset the connection."""
        self._soak.happened["streams"] += 1
        await together(
            self._read_stream(rng.choice([5, 1000]), rng.uniform(0.5, 4.0)), self._draft(rng), self._draft(rng)
        )

    async def _read_stream(self, events: int, seconds: float) -> None:
        position, heard = self._known, self._heard
        self._soak.requests += 1
        with closing(await Wire.open(self._soak.address)) as wire, suppress(TimeoutError):  # it may wait for drafts
            path = f"/sessions/{self._id}/stream?from={position}"
            opened = await wire.ask(request("GET", path, None, self._headers))
            if opened.status != 200:
                return self._refused(opened.code, heard)
            async with asyncio.timeout(seconds):
                async for name, data in wire.events():
                    if name == "error":
                        return self._refused(data["error"]["code"], heard)
                    if name == "end" or events == 0:
                        break
                    end, events = position + len(data["tokens"]), events - 1
                    self._check(
                        data["position"], data | {"total_tokens": end, "finish_reason": self._truth.ending(end)}
                    )
                    position = end
            wire.reset()

    async def _crash(self, rng: random.Random) -> None:
        """Break connections in the middle of requests; then be away for a moment, and perhaps return."""
        self._soak.happened["crashes"] += 1
        body = {"position": self._known, "draft_tokens": self._drafts(rng, 4)}
        whole = request("POST", "/verify", body, self._headers)
        for _ in range(rng.randint(1, 3)):
            self._soak.requests += 1
            with closing(await Wire.open(self._soak.address)) as wire:
                await wire.send(whole[: rng.choice([rng.randrange(len(whole)), len(whole)])])
                await self._soak.pause(rng.choice([0.0, 0.0, rng.expovariate(10.0)]))
                if rng.random() < 0.5:
                    wire.reset()
        self._over = not await self._return(rng, rng.uniform(0.0, 1.0))

    async def _stall(self, rng: random.Random) -> None:
        """Silence, now and then for longer than a session is remembered."""
        self._soak.happened["stalls"] += 1
        await self._return(
            rng, rng.uniform(0.3, 3.0) if rng.random() < 0.85 else self._soak.ttl * rng.uniform(0.9, 1.5)
        )

    async def _return(self, rng: random.Random, seconds: float) -> bool:
        """Be away; then, in half of the cases, open the session again. Whether it was opened."""
        await self._soak.pause(seconds)
        if returns := rng.random() < 0.5 and not self._soak.over.is_set():
            self._soak.happened["returns"] += 1
            await self._open()
        return returns and not self._over

    async def _delete(self) -> None:
        self._soak.happened["deleted in flight"] += 1
        self.deleted = self._over = True
        await self._ask("DELETE", f"/sessions/{self._id}")


async def together(*doing: Coroutine[Any, Any, None]) -> None:
    """Do all at once; what fails ends the others."""
    async with asyncio.TaskGroup() as group:
        for each in doing:
            group.create_task(each)
