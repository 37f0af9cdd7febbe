"""Drafters that connect, crash, stall and return, for minutes: what they receive, and what the verifier holds.

Method. A verifier process with a toy model of fewer slots than sessions, so that slots are taken over, recomputed and
shared all the time, checks its own bookkeeping every 50 ms (`lab.benchmarks.faults.soak.verifier`). The drafters
(`lab.benchmarks.faults.soak.drafters`) are in this process; every token they receive is compared with the session's
text, computed here. At the end they all vanish, and once their sessions have expired nothing may be left of them.

A run fails on any token that is not the session's own, any unexpected error, a minute of silence, inconsistent
bookkeeping, anything left at the end, an error in the verifier's log, and on memory that grows: the median resident
size in the last quarter may exceed that in the second by 2 MiB. Memory is judged only where a quarter is as long as
uvicorn keeps what it knew of a reset connection (its keep-alive time, 75 s): in runs of 300 s. With a fault put in that
kept every deleted or expired session, memory grew by 3.8 KiB a session. Needs /proc.
"""

import asyncio
import time
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from backends.scripted import Script
from lab.benchmarks.faults.machines import THREADS, Held
from lab.benchmarks.faults.soak.drafters import MAX_DRAFTS, Sample, Soak, drafter, together
from lab.benchmarks.faults.soak.verifier import CONTEXT, SCRIPT, WholeContext
from lab.benchmarks.faults.soak.wire import Wire, request
from specpair.child_processes.serving import verifier

GROWTH = 2.0  # MiB
SETTLED = 75.0  # seconds; the keep-alive time of `specpair.child_processes.serving`
DRAFTERS = 32
_AT_REST = 30.0  # seconds that may pass until nothing is left, beyond the sessions' time to live


def soak(seconds: float, drafters: int, seed: int, *, slots: int = 12, ttl: float = 6.0, model: int = 1) -> Soak:
    """Run one. `model`: the seed of the text that the verifier is held to; it serves the one of 1."""
    limits = {"batch_tokens": 256, "prefill_chunk": 64, "max_drafts": MAX_DRAFTS, "session_ttl": ttl}
    how = {"backend": "scripted", "slots": slots, "context": CONTEXT, **limits}
    with verifier("lab.benchmarks.faults.soak.verifier:application()", **how) as server:
        host, _, port = urlsplit(server.url).netloc.partition(":")
        toy = WholeContext(Script(seed=model, end_bias=SCRIPT.end_bias), slots=1, context_length=CONTEXT)
        run = Soak((host, int(port)), seed, ttl, toy)
        asyncio.run(_run(run, server.process.pid, seconds, drafters))
    return run


async def _run(run: Soak, pid: int, seconds: float, drafters: int) -> None:
    began = time.monotonic()

    async def get(path: str) -> Any:
        with closing(await Wire.open(run.address)) as wire:
            return (await wire.ask(request("GET", path))).body

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
    await together(watch(), *(drafter(run, number) for number in range(drafters)))
    patience, left = time.monotonic() + run.ttl + _AT_REST, {"something": 1}
    while left and time.monotonic() < patience and not run.faults:
        await asyncio.sleep(0.25)
        await get("/sessions")  # which removes expired sessions
        run.rest = rest = await sample()
        held = {name: rest.held[name] for name in ("sessions", "sequences", "waiting", "slots")}
        held |= {"files": rest.process.files - before.process.files}
        held |= {"threads": rest.process.threads - before.process.threads - THREADS}
        held |= {"tasks": rest.held["tasks"] - before.held["tasks"]}
        left = {name: count for name, count in held.items() if count > 0}
    if left and not run.faults:
        run.faults.append(f"left of the drafters when all were gone: {left}")


def run(seconds: float, seed: int) -> tuple[list[str], list[str]]:
    """Run one. Returns figures, and faults."""
    ran = soak(seconds, DRAFTERS, seed)
    most = {name: max((each.held[name] for each in ran.samples), default=0) for name in ("sessions", "slots", "checks")}
    settled = len(ran.samples) >= 4 and ran.quarters()[0][0].at > 0.95 * SETTLED
    growth = ran.growth if settled else 0.0
    judged = f"{growth:+.2f} MiB (at most {GROWTH:g})" if settled else "not judged in so short a run"
    figures = [
        ", ".join(f"{name} {count}" for name, count in sorted(ran.happened.items())),
        f"{ran.requests} requests, {ran.tokens} tokens compared, slowest response {ran.slowest:.2f} s",
        f"bookkeeping checked {most['checks']} times, at most {most['sessions']} sessions on {most['slots']} slots",
        f"memory, median of the last quarter less that of the second: {judged}",
    ]
    return figures, [*ran.faults, *([f"memory grew by {growth:.2f} MiB"] if growth > GROWTH else [])]
