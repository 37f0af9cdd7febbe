"""Many drafters that connect, crash, stall and come back, for minutes: whose tokens come, what it costs in memory.

Method. A verifier in a process of its own, with a toy model of fewer rows than there are sessions, so that rows are
taken over, recomputed and shared all the time. It checks its own books every 50 ms (`benchmarks.soak_verifier`). The
drafters (`benchmarks.soak_drafters`) are in this process; every token they receive is compared with the session's text,
computed here. At the end they all vanish, and once their sessions have expired nothing may be left of them.

A run fails on any token that is not the session's own, any error that was not to be expected (a 5xx other than 503
never is), any answer that takes more than a minute, books that do not add up, anything left at the end, an error in the
verifier's log, and on memory that grows: the median resident size in the last quarter of the run may exceed that in
the second by 2 MiB. The first quarter is left out, in which arenas and caches fill; and as uvicorn keeps what it knew
of a connection that was reset (some 8 KiB) until its keep-alive time is over, 75 s here, memory is judged only where
that quarter is as long: in runs of 300 s. With a fault put in that kept every session that was deleted or had expired,
it grew by 3.8 KiB a session: half a run of 300 s has some 2200 of them, 8 MiB. Needs /proc.

    python -m benchmarks.soak [--seconds 300] [--drafters 64] [--seed 0]
"""

import argparse
import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.extras import need
from benchmarks.report import Report, add_save, plot
from benchmarks.serving import Server, serve
from benchmarks.soak_caller import CONTEXT, MAX_BODY, MAX_DRAFTS, Soak
from benchmarks.soak_drafters import drafter
from benchmarks.soak_truth import Tally
from benchmarks.soak_verifier import SCRIPT, WholeContext
from benchmarks.soak_wire import Wire, request

GROWTH = 2.0  # MiB
SETTLED = 75.0  # seconds; the keep-alive time of `benchmarks.serving.serve`
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
        """MiB that the last quarter's memory is above the second's."""
        second, last = (median(sample.memory for sample in part) for part in self.quarters())
        return last - second


def soak(seconds: float, drafters: int, seed: int, *, rows: int = 12, ttl: float = 6.0, model: int = 1) -> Outcome:
    """Run one. `model`: the seed of the text that the verifier is held to; it serves the one of 1."""
    settings = {
        "VERIFIER_BACKEND": "scripted",
        "VERIFIER_ROWS": str(rows),
        "VERIFIER_CONTEXT": str(CONTEXT),
        "VERIFIER_BATCH_TOKENS": "256",
        "VERIFIER_PREFILL_CHUNK": "64",
        "VERIFIER_MAX_DRAFTS": str(MAX_DRAFTS),
        "VERIFIER_MAX_BODY_BYTES": str(MAX_BODY),
        "VERIFIER_SESSION_TTL": str(ttl),
    }
    outcome = Outcome()
    with serve("benchmarks.soak_verifier:app", settings) as server:
        asyncio.run(_run(outcome, server, seconds, drafters, seed, ttl, model))
    return outcome


async def _run(
    outcome: Outcome, server: Server, seconds: float, drafters: int, seed: int, ttl: float, model: int
) -> None:
    tally, began = outcome.tally, time.monotonic()
    parts = urlsplit(server.url)
    address = (str(parts.hostname), int(parts.port or 0))
    toy = WholeContext(type(SCRIPT)(seed=model, end_bias=SCRIPT.end_bias), rows=1, context_length=CONTEXT)
    shared = Soak(address, seed, ttl, toy, tally, asyncio.Event())

    async def sample() -> Sample:
        held = await _get(address, "/soak")
        return Sample(time.monotonic() - began, *_resident_and_open(server.process.pid), held, tally.requests)

    async def watch() -> None:
        while time.monotonic() - began < seconds and not tally.faults:
            outcome.samples.append(await sample())
            if outcome.samples[-1].held["fault"] is not None:
                tally.faults.append(f"the books: {outcome.samples[-1].held['fault']}")
            await shared.pause(min(max(0.25, seconds / 200), began + seconds - time.monotonic()))
        shared.over.set()

    while (await _get(address, "/health"))["status"] == "loading":
        await asyncio.sleep(0.05)
    before = await sample()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        for number in range(drafters):
            group.create_task(drafter(shared, number))
    patience = time.monotonic() + ttl + _AT_REST
    while True:
        await _get(address, "/sessions")  # looks who has expired
        outcome.rest = rest = await sample()
        left = {name: rest.held[name] for name in ("sessions", "texts", "seats", "waiting", "rows") if rest.held[name]}
        if rest.files > before.files:
            left["files"] = rest.files - before.files
        if rest.held["tasks"] > before.held["tasks"]:
            left["tasks"] = rest.held["tasks"] - before.held["tasks"]
        if not left or time.monotonic() > patience or rest.held["fault"] is not None:
            break
        await asyncio.sleep(0.25)
    if left:
        tally.faults.append(f"left of the drafters when all were gone: {left}")
    if rest.held["fault"] is not None:
        tally.faults.append(f"the books: {rest.held['fault']}")


async def _get(address: tuple[str, int], path: str) -> dict[str, Any]:
    wire = await Wire.open(address)
    try:
        body: dict[str, Any] = (await wire.ask(request("GET", path))).body
        return body
    finally:
        wire.hang_up()


def _resident_and_open(process: int) -> tuple[float, int]:
    """MiB of a process in memory, and how many files it has open."""
    folder = Path("/proc") / str(process)
    [line] = [line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024, sum(1 for _ in (folder / "fd").iterdir())


def _tell(report: Report, outcome: Outcome) -> bool:
    """Print what happened; whether all was well."""
    tally, samples, rest = outcome.tally, outcome.samples, outcome.rest
    assert rest is not None
    for title, counts in (("happened", tally.happened), ("errors, all to be expected", tally.errors)):
        report.line(f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    report.line(f"{tally.requests} requests, {tally.tokens} tokens compared, slowest answer {tally.slowest:.2f} s")
    report.line(
        f"{rest.held['passes']} passes, books checked {rest.held['checks']} times, "
        f"at most {max(sample.held['sessions'] for sample in samples)} sessions on "
        f"{max(sample.held['rows'] for sample in samples)} rows, {max(sample.files for sample in samples)} files open"
    )
    report.line(
        f"{'s':>6} {'MiB':>7} {'sessions':>8} {'rows':>5} {'waiting':>7} {'files':>5} {'requests':>8} {'blocks':>7}"
    )
    for each in [*samples[:: max(1, len(samples) // 30)], rest]:
        held = each.held
        report.line(
            f"{each.at:6.1f} {each.memory:7.1f} {held['sessions']:8} {held['rows']:5} {held['waiting']:7} "
            f"{each.files:5} {each.requests:8} {held['blocks']:7}"
        )
    second, last = outcome.quarters()
    requests = median(sample.requests for sample in last) - median(sample.requests for sample in second)
    flat, settled = outcome.growth <= GROWTH, second[0].at > 0.95 * SETTLED
    verdict = ("flat" if flat else "GROWS") if settled else "too short a run to judge"
    report.line(
        f"memory, median of the last quarter less that of the second: {outcome.growth:+.2f} MiB over {requests:.0f} "
        f"requests ({outcome.growth * 2**20 / max(1, requests):+.0f} bytes each), "
        f"{verdict} (at most {GROWTH:g} MiB)"
    )
    for fault in tally.faults[:20]:
        report.line(f"FAULT {fault}")
    report.line(f"{len(tally.faults)} faults")
    return (flat or not settled) and not tally.faults


def _draw(outcome: Outcome, picture: Path) -> None:
    times = [sample.at for sample in outcome.samples]
    with plot(picture, rows=2, columns=2) as ((memory, held), (waiting, files)):
        resident = [sample.memory for sample in outcome.samples]
        memory.plot(times, resident)
        memory.set(title="resident memory of the verifier", ylabel="MiB", ylim=(0, 1.2 * max(resident)))
        for name in ("sessions", "seats", "rows"):
            held.plot(times, [sample.held[name] for sample in outcome.samples], label=name)
        held.set(title="what it holds", ylim=(0, None))
        held.legend()
        waiting.plot(times, [sample.held["waiting"] for sample in outcome.samples])
        waiting.set(title="guesses that wait", xlabel="s", ylim=(0, None))
        files.plot(times, [sample.files for sample in outcome.samples])
        files.set(title="open files", xlabel="s", ylim=(0, None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--drafters", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    add_save(parser)
    options = parser.parse_args()
    need("matplotlib")
    report = Report("soak", options)
    outcome = soak(options.seconds, options.drafters, options.seed)
    well = _tell(report, outcome)
    report.save()
    _draw(outcome, report.beside(".png"))
    if not well:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
