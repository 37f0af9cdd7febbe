"""Fault tests, in virtual time and with real processes: each text must equal the target's, and no state may remain.

Worlds (`--seeds`) are made by their seeds, of four kinds by turns. Time is virtual. In half of the worlds of the first
three kinds, the target has a head of its own, which predicts tokens:

- pairs: drafters' controllers and a verifier's scheduler over networks that delay, lose, reorder and repeat messages;
  the verifier is killed, and the drafters go on with the next one;
- clients: clients that send right, wrong, stale, repeated and cancelled requests to an engine whose passes may fail;
- drafting: the verifier drafts for several texts, by its own head, a draft model or both; its slots are taken, passes
  and steps of the head fail, texts are cancelled and begun again, and the verifier is killed;
- exchanges: the library and the verifier's whole application; requests and replies are lost, cut, late, repeated or
  refused, the verifier or one of its fronts is killed, its engine fails, and another model takes its address.

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

import time
from collections.abc import Callable, Sequence
from typing import Any

from lab.benchmarks.faults import disk, fleet, soak, worlds
from lab.benchmarks.harness.report import Report, options_of
from tests.deploy.routers import FILES, program

_SHOWN = 20  # faults


def main() -> None:
    flags: dict[str, Any] = {"seeds": 300, "minutes": 1.5, "first": 0, "seed": 0}
    flags |= {"way": {"default": "specpair", "choices": tuple(FILES)}}
    options = options_of(__doc__, flags | {"world": {"type": int, "default": None}})
    if options.world is not None:
        print(worlds.world(options.world))
        return
    if program(options.way) is None:
        raise SystemExit(f"{options.way} is not installed")
    report, found = Report("faults", options), 0

    def run_suite(name: str, run: Callable[[], tuple[Sequence[str], Sequence[str]]], again: str = "") -> None:
        nonlocal found
        began = time.monotonic()
        figures, faults = run()
        report.line(f"{name}: {time.monotonic() - began:.0f} s", *(f"  {each}" for each in figures))
        report.line(*(f"FAULT {each}{again}" for each in faults[: max(0, _SHOWN - found)]))
        found += len(faults)

    if options.seeds:
        seeds = range(options.first, options.first + options.seeds)
        run_suite(f"{options.seeds} worlds in virtual time", lambda: worlds.run(seeds))
    if options.minutes:
        seconds, seed = 30 * options.minutes, options.seed  # each of two parts; a full disk takes a few seconds
        again = f"\n    repeat: python -m lab.benchmarks.faults --seeds 0 --minutes {options.minutes:g} --seed {seed}"
        run_suite("full disk", disk.run, again)
        run_suite("fleet", lambda: fleet.run(seconds, seed, options.way), again)
        run_suite("soak", lambda: soak.run(seconds, seed), again)
    report.line(f"{found} faults")
    report.save()
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
