"""The command `run`: runs a configuration and prints what came of it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from simulator.commands.command import Command, complain
from simulator.commands.progress import shown
from simulator.configuration.reading import BadConfiguration, read
from simulator.costs.cost import BadCost, CostUnknown
from simulator.fleet.observer import Sample
from simulator.fleet.record import Record
from simulator.results.fidelity import Fidelity
from simulator.running.setting import MS, CannotRun
from simulator.running.simulate import seed_of, simulate
from specpair.command_line.parser import Parser
from specpair.request_traces.request import BadTrace

INTERRUPTED = 130  # the exit status behind Ctrl-C, as of a shell
ERRORS = (BadConfiguration, BadCost, BadTrace, CannotRun, CostUnknown)  # each with a message for the user


class _Counted:
    """Counts the requests that were sent behind the burn-in, and their tokens."""

    def __init__(self, begin: float) -> None:
        """`begin`: seconds of the burn-in."""
        self._begin, self.requests, self.tokens = begin, 0, 0
        self.fidelity = Fidelity(begin)

    def record(self, record: Record) -> None:
        self.fidelity.add(record)
        if record.sent >= self._begin:
            self.requests += 1
            self.tokens += len(record.times)

    def sample(self, samples: Sequence[Sample]) -> None:
        pass


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a configuration")


def _run(options: argparse.Namespace) -> int:
    try:
        configuration = read(options.file)
        counted = _Counted(configuration.burn_in_ms * MS)
        asked = configuration.sim_time_ms * MS
        with shown(asked) as progress:
            seconds = simulate(configuration, seed_of(configuration, 0), counted, progress)
    except ERRORS as error:
        return complain(error)
    measured = max(seconds - configuration.burn_in_ms * MS, 0.0)
    print(f"requests: {counted.requests}\ntokens/s: {counted.tokens / measured if measured else 0.0:.1f}")
    if line := counted.fidelity.line():
        print(line)
    if seconds < asked:
        complain(f"interrupted: this is what came up to {seconds:g} of {asked:g} simulated seconds")
        return INTERRUPTED
    return 0


RUN = Command(
    "run",
    "FILE",
    "Runs a configuration in virtual time.",
    _run,
    _add_arguments,
    ("python -m simulator run fleet.yaml",),
)
