"""The command `run`: runs a configuration and prints what came of it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from simulator.commands.command import Command, complain
from simulator.configuration.reading import BadConfiguration, read
from simulator.costs.cost import BadCost, CostUnknown
from simulator.fleet.observer import Sample
from simulator.fleet.record import Record
from simulator.running.setting import MS, CannotRun
from simulator.running.simulate import seed_of, simulate
from specpair.command_line.parser import Parser
from specpair.request_traces.request import BadTrace

ERRORS = (BadConfiguration, BadCost, BadTrace, CannotRun, CostUnknown)  # each with a message for the user


class _Counted:
    """Counts the requests that were sent behind the burn-in, and their tokens."""

    def __init__(self, begin: float) -> None:
        """`begin`: seconds of the burn-in."""
        self._begin, self.requests, self.tokens = begin, 0, 0

    def record(self, record: Record) -> None:
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
        simulate(configuration, seed_of(configuration, 0), counted)
    except ERRORS as error:
        return complain(error)
    seconds = (configuration.sim_time_ms - configuration.burn_in_ms) * MS
    print(f"requests: {counted.requests}\ntokens/s: {counted.tokens / seconds:.1f}")
    return 0


RUN = Command(
    "run",
    "FILE",
    "Runs a configuration in virtual time.",
    _run,
    _add_arguments,
    ("python -m simulator run fleet.yaml",),
)
