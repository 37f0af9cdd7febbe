"""Faults, in virtual time and with real processes: each text has to be the target's own, and nothing may be left.

Worlds in virtual time (`--seeds`), made by their seeds, of three kinds by turns:

- pairs: drafters' controllers and a verifier's scheduler over networks that delay, lose, reorder and repeat messages;
  the verifier is killed, and the drafters go on with the next one;
- clients: clients that send right, wrong, stale, repeated and cancelled requests to an engine whose passes may fail;
- exchanges: the library and the verifier's whole application; requests and replies are lost, cut, late, repeated or
  refused, the verifier is killed, its engine fails, and another model takes its address.

Then real processes (`--minutes`, which the last two share):

- a full disk: every program that writes files meets one, and says so, and its text is whole;
- fleet: three verifiers with the pair that ships, in a list and behind a router, are killed, drained, cut off and
  added; another model takes an address; texts in every mode, and streams of OpenAI's endpoints;
- soak: drafters connect, crash, stall and return to a verifier with fewer slots than sessions, whose bookkeeping is
  checked all the time.

Checked: every text is the target's own as plain decoding gives it; positions have no gap and no token comes twice;
afterwards sessions, slots, requests, threads, open files and memory are back within the bounds that the modules name.
Each failure names its seed, and the command that repeats it.

    python -m lab.benchmarks.faults [--seeds 300] [--minutes 1.5] [--first 0] [--world SEED] [--seed 0] [--way nginx]
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lab.benchmarks.faults import disk, fleet, worlds
from lab.benchmarks.faults.soak import soaking
from lab.benchmarks.harness.report import Report, options_of
from tests.deploy.routers import FILES, program


class _Part:
    """One part of the suite: its figures and its faults."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.faults = 0

    @contextmanager
    def begun(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._report.line(f"{name}: {time.monotonic() - began:.0f} s")

    def wrong(self, fault: str) -> None:
        self.faults += 1
        if self.faults <= 20:
            self._report.line(f"FAULT {fault}")


def _virtual(options: argparse.Namespace, report: Report, part: _Part) -> None:
    seeds, before = range(options.first, options.first + options.seeds), part.faults
    with part.begun(f"{options.seeds} worlds in virtual time"):
        for fault in worlds.failures(seeds):
            part.wrong(fault)
    report.line(f"  {part.faults - before} worlds with a difference, a loss or something left")


def _real(options: argparse.Namespace, report: Report, part: _Part) -> None:
    seconds = 30 * options.minutes  # each of two parts; a full disk takes a few seconds
    again = f"    repeat: python -m lab.benchmarks.faults --seeds 0 --minutes {options.minutes:g} --seed {options.seed}"
    for name, run in (
        ("full disk", disk.run),
        ("fleet", lambda: fleet.run(seconds, options.seed, options.way)),
        ("soak", lambda: soaking.run(seconds, options.seed)),
    ):
        with part.begun(name):
            figures, faults = run()
        report.line(*(f"  {each}" for each in figures))
        for fault in faults:
            part.wrong(f"{name}: {fault}\n{again}")


def main() -> None:
    flags: dict[str, Any] = {"seeds": 300, "minutes": 1.5, "first": 0, "seed": 0}
    flags |= {"way": {"default": "specpair", "choices": tuple(FILES)}}
    options = options_of(__doc__, flags | {"world": {"type": int, "default": None}})
    if options.world is not None:
        print(worlds.world(options.world))
        return
    if program(options.way) is None:
        raise SystemExit(f"{options.way} is not installed")
    report = Report("faults", options)
    part = _Part(report)
    if options.seeds:
        _virtual(options, report, part)
    if options.minutes:
        _real(options, report, part)
    report.line(f"{part.faults} faults")
    report.save()
    if part.faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
