"""The base of the simulator's commands: shared flags and output."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from backends.machine import cores
from lab.request_traces import BadTrace
from lab.simulator.configuration.reading import BadConfiguration
from lab.simulator.costs.cost import BadCost, CostUnknown
from lab.simulator.search.comparison import BadSearch
from specpair.command_line.parser import Parser
from specpair.command_line.table import Table, print_table, standard_output
from specpair.protocol.terminal_text import one_line

# What is raised for something that is wrong, or cannot be done: each has a message for the user.
ERRORS = (BadConfiguration, BadCost, BadSearch, BadTrace, CostUnknown)
INTERRUPTED = 130  # the exit status behind Ctrl-C, as of a shell


@dataclass(frozen=True)
class SimulatorCommand:
    """A command of `specpair simulator`."""

    name: str
    usage: str  # its arguments, such as "FILE [FLAGS]"
    does: str  # one sentence
    run: Callable[[argparse.Namespace], int]  # returns the exit status: 1 for an error that was told
    add_arguments: Callable[[Parser], object]
    examples: tuple[str, ...]

    def parser(self) -> Parser:
        """The parser of its arguments."""
        name = f"specpair simulator {self.name}"
        made = Parser(name, usage=self.usage, description=self.does, examples=self.examples)
        self.add_arguments(made)
        return made


def whole(given: str) -> int:
    """A whole number of at least 1, as the value of a flag."""
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {given!r}")
    return int(given)


def add_set(parser: Any) -> None:
    """Add `--set` to a parser, or to a group of it."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace a key, such as workload.rate_rps=4 or devices.verifiers.big.count=3; may be given more than once",
    )


def add_jobs(parser: Any) -> None:
    """Add `--jobs` to a parser, or to a group of it."""
    parser.add_argument("--jobs", type=whole, default=cores(), metavar="N", help="processes (default: one a core)")


def tell_tried(said: Sequence[str], cells: Table) -> None:
    """Print the tried candidates, and the result."""
    out = standard_output()
    print_table(cells, out)
    for each in said:
        out.print(one_line(each), soft_wrap=True)


def note(said: str) -> None:
    """Print a note in one line on standard error."""
    print(f"simulator: {one_line(said)}", file=sys.stderr)


def complain(message: object) -> int:
    """Print an error in one line on standard error. Returns the exit status, 1."""
    note(str(message))
    return 1
