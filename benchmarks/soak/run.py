"""Many drafters that connect, crash, stall and return, for minutes: what they receive, and what the verifier holds.

Method. A verifier process with a toy model of fewer slots than there are sessions, so that slots are taken over,
recomputed and shared all the time. It checks its own bookkeeping every 50 ms (`benchmarks.soak.verifier`). The drafters
(`benchmarks.soak.drafters`) are in this process; every token they receive is compared with the session's text, computed
here. At the end they all vanish, and once their sessions have expired nothing may be left of them.

A run fails on any token that is not the session's own, any unexpected error, a response that takes more than a minute,
inconsistent bookkeeping, anything left at the end, an error in the verifier's log, and on memory that grows: the median
resident size in the last quarter of the run may exceed that in the second by 2 MiB. The first quarter is left out, in
which arenas and caches fill; and as uvicorn keeps some 8 KiB of a connection that was reset until its keep-alive time is
over, 75 s here, memory is judged only where that quarter is as long: in runs of 300 s. With a fault put in that kept every
session that was deleted or had expired, it grew by 3.8 KiB a session. Needs /proc.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from backends.scripted import Script
from benchmarks.harness.serving import Server, verifier
from benchmarks.harness.wire import Wire, request
from benchmarks.soak.drafters import MAX_DRAFTS, Soak, Tally, drafter
from benchmarks.soak.truth import CONTEXT, WholeContext
from benchmarks.soak.verifier import SCRIPT

GROWTH = 2.0  # MiB
SETTLED = 75.0  # seconds; the keep-alive time of `benchmarks.harness.serving`
_AT_REST = 30.0  # seconds that may pass until nothing is left, beyond the sessions' time to live


@dataclass(frozen=True, slots=True)
class Sample:
    """The verifier at one moment."""

    at: float  # seconds since the start
    memory: float  # MiB, resident
    files: int  # open ones, sockets among them
    held: dict[str, Any]  # as `/soak` says
    requests: int  # of the drafters, so far


@dataclass
class Outcome:
    """What came of a soak."""

    tally: Tally = field(default_factory=Tally)
    samples: list[Sample] = field(default_factory=list)  # while drafters live
    rest: Sample | None = None  # afterwards

    def quarters(self) -> tuple[list[Sample], list[Sample]]:
        """The second and the last quarter of the samples."""
        quarter = len(self.samples) // 4
        return self.samples[quarter : 2 * quarter], self.samples[-quarter:]

    @property
    def growth(self) -> float:
        """MiB by which the last quarter's median memory exceeds the second's."""
        second, last = (median(sample.memory for sample in part) for part in self.quarters())
        return last - second


def soak(seconds: float, drafters: int, seed: int, *, rows: int = 12, ttl: float = 6.0, model: int = 1) -> Outcome:
    """Run one. `model`: the seed of the text that the verifier is held to; it serves the one of 1."""
    limits = {"batch_tokens": 256, "prefill_chunk": 64, "max_drafts": MAX_DRAFTS, "session_ttl": ttl}
    how = {"backend": "scripted", "rows": rows, "context": CONTEXT, **limits}
    outcome = Outcome()
    with verifier("benchmarks.soak.verifier:application()", **how) as server:
        parts = urlsplit(server.url)
        address = (str(parts.hostname), int(parts.port or 0))
        toy = WholeContext(Script(seed=model, end_bias=SCRIPT.end_bias), rows=1, context_length=CONTEXT)
        asyncio.run(_run(outcome, server, seconds, drafters, Soak(address, seed, ttl, toy, outcome.tally)))
    return outcome


async def _run(outcome: Outcome, server: Server, seconds: float, drafters: int, shared: Soak) -> None:
    tally, began = outcome.tally, time.monotonic()

    async def get(path: str) -> Any:
        wire = await Wire.open(shared.address)
        try:
            return (await wire.ask(request("GET", path))).body
        finally:
            wire.hang_up()

    async def sample() -> Sample:
        held = await get("/soak")
        if held["fault"] is not None:
            tally.faults.append(f"the verifier: {held['fault']}")
        folder = Path("/proc") / str(server.process.pid)
        [line] = [line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:")]
        files = sum(1 for _ in (folder / "fd").iterdir())
        return Sample(time.monotonic() - began, int(line.split()[1]) / 1024, files, held, tally.requests)

    async def watch() -> None:
        while time.monotonic() - began < seconds and not tally.faults:
            outcome.samples.append(await sample())
            await shared.pause(min(max(0.25, seconds / 200), began + seconds - time.monotonic()))
        shared.over.set()

    while (await get("/health"))["status"] == "loading":
        await asyncio.sleep(0.05)
    before = await sample()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        for number in range(drafters):
            group.create_task(drafter(shared, number))
    patience, left = time.monotonic() + shared.ttl + _AT_REST, {"something": 1}
    while left and time.monotonic() < patience and not tally.faults:
        await asyncio.sleep(0.25)
        await get("/sessions")  # which removes expired sessions
        outcome.rest = rest = await sample()
        left = {name: rest.held[name] for name in ("sessions", "sequences", "waiting", "slots")}
        left |= {"files": rest.files - before.files, "tasks": rest.held["tasks"] - before.held["tasks"]}
        left = {name: count for name, count in left.items() if count > 0}
    outcome.rest = outcome.rest or await sample()
    if left and not tally.faults:
        tally.faults.append(f"left of the drafters when all were gone: {left}")
