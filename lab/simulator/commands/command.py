"""What a command is."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from lab.request_traces.request import BadTrace
from lab.simulator.commands.output import note
from lab.simulator.configuration.reading import BadConfiguration
from lab.simulator.costs.cost import BadCost, CostUnknown
from lab.simulator.results.report.picture import NoPicture
from lab.simulator.results.summary import BadSummary
from lab.simulator.search.space import BadSearch
from specpair.command_line.parser import Parser

# What is raised for something that is wrong, or cannot be done: each has a message for the user.
ERRORS = (BadConfiguration, BadCost, BadSearch, BadSummary, BadTrace, CostUnknown, NoPicture)
INTERRUPTED = 130  # the exit status behind Ctrl-C, as of a shell


def _nothing(parser: Parser) -> None:
    """Add no arguments."""


@dataclass(frozen=True)
class Command:
    """A command of `specpair simulator`."""

    name: str
    usage: str  # its arguments, such as "FILE [FLAGS]"
    does: str  # one sentence
    run: Callable[[argparse.Namespace], int]  # returns the exit status: 1 for an error that was told
    add_arguments: Callable[[Parser], None] = _nothing
    examples: tuple[str, ...] = ()

    def parser(self) -> Parser:
        """The parser of its arguments."""
        examples = self.examples or (f"specpair simulator {self.name}",)
        made = Parser(f"specpair simulator {self.name}", usage=self.usage, description=self.does, examples=examples)
        self.add_arguments(made)
        return made


def complain(message: object) -> int:
    """Tell of an error in one line on standard error. Returns the exit status, 1."""
    note(str(message))
    return 1
