"""Drafters connect, crash, stall and return, for minutes: checks their replies and the verifier's state.

Method. A verifier process with a toy model of fewer slots than sessions, so that slots are taken over, recomputed and
shared all the time, checks its own bookkeeping every 50 ms (`soak_verifier.py`). The drafters are in this process. Each
lives one life after the other. A life is one session: it is opened, and then step after step something is done with it,
until it is deleted or its drafter vanishes. Every step draws from a generator of its own, seeded with drafter, life and
step, so that no timing changes what is chosen next. Every token is compared with the session's text, computed here. At
the end all drafters vanish, and once their sessions have expired nothing may be left of them.

A run fails on any token that is not the session's own, any unexpected error, a minute of silence, inconsistent
bookkeeping, anything left at the end, an error in the verifier's log, and on memory that grows: the median resident
size in the last quarter may exceed that in the second by 2 MiB. Memory is judged only where a quarter is as long as
uvicorn keeps what it knew of a reset connection (its keep-alive time, 75 s): in runs of 300 s. With a fault put in that
kept every deleted or expired session, memory grew by 3.8 KiB a session.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from backends.scripted import END, Script
from lab.benchmarks.faults.checks import THREADS, Held, connected, request
from lab.benchmarks.faults.soak_verifier import CONTEXT, SCRIPT, WholeContext
from specpair.child_processes.serving import verifier
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain

GROWTH = 2.0  # MiB
SETTLED = 75.0  # seconds; the keep-alive time of `specpair.child_processes.serving`
DRAFTERS = 32
MAX_DRAFTS = 16  # of the verifier
_AT_REST = 30.0  # seconds that may pass until nothing is left, beyond the sessions' time to live


class Fault(Exception):
    """The verifier sent a wrong reply."""


class Sample(NamedTuple):
    """The verifier at one moment."""

    at: float  # seconds since the start
    process: Held
    held: dict[str, Any]  # as `/soak` says


@dataclass
class Soak:
    """The shared state of all drafters of a soak, and the record of faults."""

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

    @property
    def growth(self) -> float | None:
        """MiB by which the last quarter's median memory exceeds the second's. None: the run was too short."""
        quarter = len(self.samples) // 4
        second, last = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        if not quarter or second[0].at <= 0.95 * SETTLED:
            return None
        before, after = (median(sample.process.memory for sample in part) for part in (second, last))
        return after - before

    def rng(self, *names: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *names))))

    async def pause(self, seconds: float) -> None:
        """Let time pass; return early when the soak is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), seconds)

    async def drafter(self, number: int) -> None:
        """Live until the soak is over. Whatever the verifier does wrong is noted in `faults`."""
        life = 0
        while not self.over.is_set():
            self.happened["lives"] += 1
            try:
                await Life(self, number, life).live()
            except* (Fault, OSError, EOFError, TimeoutError) as group:
                self.faults.append(f"drafter {number}, life {life}: {group!r}")
            life += 1


class Life:
    """What one drafter does with one session."""

    def __init__(self, soak: Soak, drafter: int, number: int) -> None:
        self._soak, self._id, self._names = soak, f"d{drafter}-{number}", (drafter, number)
        self._headers = {"X-Session-Id": self._id, "Authorization": f"Bearer {drafter}"}
        rng = self._rng("opening")
        common, length = soak.rng("common", rng.randrange(4)), rng.choice([0, rng.randint(20, 200)])
        tail = [rng.randrange(256) for _ in range(rng.randint(0 if length else 1, 30))]
        self._prompt = [common.randrange(256) for _ in range(200)][
            :length
        ] + tail  # many begin alike, some are the same
        how = {"seed": rng.randrange(1000), "temperature": rng.choice([0.0, 0.5, 1.0, 2.0])}
        how |= {"top_k": rng.choice([0, 0, 5, 40]), "top_p": rng.choice([1.0, 0.9])} if how["temperature"] else {}
        most = rng.choice([rng.randint(1, 150), 512])
        self.opening = {"prompt_ids": self._prompt, "max_tokens": most, "self_continue": rng.random() < 0.5, **how}
        self._text = self._prompt + plain(soak.model, self._prompt, most, Sampling(**how))  # type: ignore[arg-type]
        self._known = 0  # tokens received
        self._heard = float("-inf")  # when the last request was sent that has been answered
        self._deleted = self._over = self._lost = False

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

    def _must_know(self, heard: float) -> bool:
        """Whether the verifier must still have the session, last `heard` of at that time."""
        return not self._deleted and time.monotonic() - heard < self._soak.ttl

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The reply; None if the verifier is overloaded, or may have forgotten the session. Raises Fault."""
        sent, heard = time.monotonic(), self._heard
        self._soak.requests += 1
        async with connected(self._soak.address) as wire:
            status, reply = await wire.ask(request(method, path, body, self._headers))
        self._soak.slowest = max(self._soak.slowest, time.monotonic() - sent)
        if status == 200:
            self._heard = max(sent, self._heard)
            return reply
        self._lost |= self._refused(reply, heard) == "unknown_session"
        self._over |= path == "/prefill"
        return None

    def _refused(self, body: Any, heard: float) -> str:
        """The code of an allowed error. Raises Fault for any other."""
        code = str(body["error"]["code"])
        if code != "overloaded" and (code != "unknown_session" or self._must_know(heard)):
            raise Fault(f"{self._id}: refused with {code}")
        self._soak.happened[f"refused: {code}"] += 1
        return code

    async def _open(self) -> None:
        """Prefill, for the first time or again."""
        heard, known, self._lost = self._heard, self._known, False
        body = await self._ask("POST", "/prefill", self.opening)
        if body is not None:
            if body["session_id"] != self._id or body["prompt_ids"] != self._prompt:
                raise Fault(f"{self._id}: opened {body['session_id']} with the prompt {body['prompt_ids']}")
            if self._must_know(heard) and body["total_tokens"] < known:
                raise Fault(f"{self._id}: {known} tokens were committed, now {body['total_tokens']}")
            self._known = body["total_tokens"]
            self._check(len(self._prompt), body)

    async def _verify(self, position: int, drafts: list[int]) -> None:
        body = await self._ask("POST", "/verify", {"position": position, "draft_tokens": drafts, "next_in_ms": 20.0})
        if body is not None:
            self._check(position, body)
            if body["position"] != position or body["accepted_prefix_len"] != common_prefix(body["tokens"], drafts):
                raise Fault(f"{self._id}: {drafts} at {position} was answered with {body}")
            if not body["tokens"] and body["finish_reason"] is None:
                raise Fault(f"{self._id}: no token came from {position} on, and the text has not ended")
            self._known = max(self._known, body["total_tokens"])

    def _ending(self, total: int) -> str | None:
        """The finish reason of the first `total` tokens."""
        return None if total < len(self._text) else "stop" if self._text[-1] == END else "length"

    def _check(self, position: int, body: dict[str, Any]) -> None:
        """Raise Fault unless the tokens from `position` on are right, and the reply's other fields fit them."""
        tokens, end = body["tokens"], position + len(body["tokens"])
        said, true = (body["total_tokens"], body["finish_reason"]), (end, self._ending(end))
        if tokens != self._text[position:end] or said != true:
            expected = self._text[position:end]
            raise Fault(f"{self._id}: from {position} on came {tokens} {said}, it is {expected} {true}")
        self._soak.tokens += len(tokens)

    def _drafts(self, rng: random.Random, length: int) -> list[int]:
        """The right tokens behind the known ones, with an occasional mistake."""
        drafts = self._text[self._known : self._known + length]
        drafts += [rng.randrange(256) for _ in range(length - len(drafts))]
        return [rng.randrange(256) if rng.random() < 0.15 else token for token in drafts]

    async def _draft(self, rng: random.Random) -> None:
        """One draft, or several in flight, each built on the one before or beginning like it; now and then a repeat."""
        self._soak.happened["drafts in flight"] += 1
        position, path = self._known, self._drafts(rng, MAX_DRAFTS)
        cuts = rng.choices(range(MAX_DRAFTS + 1), k=rng.choice([1, 1, rng.randint(2, 6)]))
        await together(*(self._verify(position, path[:cut]) for cut in (cuts if cuts[0] % 3 == 0 else sorted(cuts))))

    async def _follow(self, rng: random.Random) -> None:
        """Read the stream of tokens while drafting, for some seconds or events, and then reset the connection."""
        self._soak.happened["streams"] += 1
        reading = self._read_stream(rng.choice([5, 1000]), rng.uniform(0.5, 4.0))
        await together(reading, self._draft(rng), self._draft(rng))

    async def _read_stream(self, events: int, seconds: float) -> None:
        position, heard = self._known, self._heard
        self._soak.requests += 1
        path = f"/sessions/{self._id}/stream?from={position}"
        async with connected(self._soak.address) as wire:
            status, refusal = await wire.ask(request("GET", path, None, self._headers))
            if status != 200:
                self._refused(refusal, heard)
                return
            with suppress(TimeoutError):  # it may wait for drafts
                async with asyncio.timeout(seconds):
                    async for name, data in wire.events():
                        if name == "error":
                            self._refused(data, heard)
                            return
                        if name == "end" or events == 0:
                            break
                        end, events = position + len(data["tokens"]), events - 1
                        self._check(data["position"], data | {"total_tokens": end, "finish_reason": self._ending(end)})
                        position = end
            wire.reset()

    async def _crash(self, rng: random.Random) -> None:
        """Break connections in the middle of requests; then be away for a moment, and perhaps return."""
        self._soak.happened["crashes"] += 1
        body = {"position": self._known, "draft_tokens": self._drafts(rng, 4)}
        whole = request("POST", "/verify", body, self._headers)
        for _ in range(rng.randint(1, 3)):
            self._soak.requests += 1
            async with connected(self._soak.address) as wire:
                await wire.send(whole[: rng.choice([rng.randrange(len(whole)), len(whole)])])
                await self._soak.pause(rng.choice([0.0, 0.0, rng.expovariate(10.0)]))
                if rng.random() < 0.5:
                    wire.reset()
        self._over = not await self._return(rng, rng.uniform(0.0, 1.0))

    async def _stall(self, rng: random.Random) -> None:
        """Silence, now and then for longer than a session is remembered."""
        self._soak.happened["stalls"] += 1
        long = rng.random() >= 0.85
        await self._return(rng, self._soak.ttl * rng.uniform(0.9, 1.5) if long else rng.uniform(0.3, 3.0))

    async def _return(self, rng: random.Random, seconds: float) -> bool:
        """Stay away; then, in half of the cases, reopen the session. Returns whether it was reopened."""
        await self._soak.pause(seconds)
        if returns := rng.random() < 0.5 and not self._soak.over.is_set():
            self._soak.happened["returns"] += 1
            await self._open()
        return returns and not self._over

    async def _delete(self) -> None:
        self._soak.happened["deleted in flight"] += 1
        self._deleted = self._over = True
        await self._ask("DELETE", f"/sessions/{self._id}")


async def together(*doing: Coroutine[Any, Any, None]) -> None:
    """Run all at once; a failure ends the others."""
    async with asyncio.TaskGroup() as group:
        for each in doing:
            group.create_task(each)


def soak(seconds: float, drafters: int, seed: int, *, slots: int = 12, ttl: float = 6.0, model: int = 1) -> Soak:
    """Run one. `model`: the seed of the text that the verifier is held to; it serves the one of 1."""
    limits = {"batch_tokens": 256, "prefill_chunk": 64, "max_drafts": MAX_DRAFTS, "session_ttl": ttl}
    how = {"backend": "scripted", "slots": slots, "context": CONTEXT, **limits}
    toy = WholeContext(Script(seed=model, end_bias=SCRIPT.end_bias), slots=1, context_length=CONTEXT)
    with verifier("lab.benchmarks.faults.soak_verifier:application()", **how) as server:
        host, _, port = urlsplit(server.url).netloc.partition(":")
        run = Soak((host, int(port)), seed, ttl, toy)
        asyncio.run(_run(run, server.process.pid, seconds, drafters))
    return run


async def _run(run: Soak, pid: int, seconds: float, drafters: int) -> None:
    began = time.monotonic()

    async def get(path: str) -> Any:
        async with connected(run.address) as wire:
            return (await wire.ask(request("GET", path)))[1]

    async def sample() -> Sample:
        held = await get("/soak")
        if held["fault"] is not None:
            run.faults.append(f"the verifier: {held['fault']}")
        return Sample(time.monotonic() - began, Held.by(pid), held)

    async def watch() -> None:
        while time.monotonic() - began < seconds and not run.faults:
            run.samples.append(await sample())
            await run.pause(min(max(0.25, seconds / 200), began + seconds - time.monotonic()))
        run.over.set()

    while (await get("/health"))["status"] == "loading":
        await asyncio.sleep(0.05)
    before = await sample()
    await together(watch(), *(run.drafter(number) for number in range(drafters)))
    patience, left = time.monotonic() + run.ttl + _AT_REST, {"something": 1}
    while left and time.monotonic() < patience and not run.faults:
        await asyncio.sleep(0.25)
        await get("/sessions")  # which removes expired sessions
        run.rest = rest = await sample()
        held = {name: rest.held[name] for name in ("sessions", "sequences", "waiting", "slots")}
        held["files"] = rest.process.files - before.process.files
        held["threads"] = rest.process.threads - before.process.threads - THREADS
        held["tasks"] = rest.held["tasks"] - before.held["tasks"]
        left = {name: count for name, count in held.items() if count > 0}
    if left and not run.faults:
        run.faults.append(f"left of the drafters when all were gone: {left}")


def run(seconds: float, seed: int) -> tuple[list[str], list[str]]:
    """Run one. Returns figures, and faults."""
    ran = soak(seconds, DRAFTERS, seed)
    most = {name: max((each.held[name] for each in ran.samples), default=0) for name in ("sessions", "slots", "checks")}
    growth = ran.growth
    judged = "not judged in so short a run" if growth is None else f"{growth:+.2f} MiB (at most {GROWTH:g})"
    figures = [
        ", ".join(f"{name} {count}" for name, count in sorted(ran.happened.items())),
        f"{ran.requests} requests, {ran.tokens} tokens compared, slowest response {ran.slowest:.2f} s",
        f"bookkeeping checked {most['checks']} times, at most {most['sessions']} sessions on {most['slots']} slots",
        f"memory, median of the last quarter less that of the second: {judged}",
    ]
    return figures, [*ran.faults, *([f"memory grew by {growth:.2f} MiB"] if growth and growth > GROWTH else [])]
