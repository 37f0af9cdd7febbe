"""The command line of `specpair simulator`."""

import sys
from collections.abc import Sequence

from lab.simulator.commands.capacity import CAPACITY
from lab.simulator.commands.check import CHECK
from lab.simulator.commands.compare import COMPARE
from lab.simulator.commands.init import INIT
from lab.simulator.commands.run import RUN
from lab.simulator.commands.schema import SCHEMA
from lab.simulator.commands.search import SEARCH
from lab.simulator.processes import collect_seldom
from specpair.command_line import start
from specpair.command_line.parser import OneOf, Parser, Parsers

COMMANDS = {each.name: each for each in (INIT, CHECK, SCHEMA, RUN, SEARCH, CAPACITY, COMPARE)}


def parser() -> Parser:
    """The parser of the first word. Each command has one of its own."""
    made = Parser(
        "specpair simulator",
        usage="COMMAND …",
        description="Simulates a fleet of drafters and verifiers in virtual time. "
        + " ".join(f"'{each.name}' {each.does[0].lower()}{each.does[1:]}" for each in COMMANDS.values()),
        examples=tuple(example for each in COMMANDS.values() for example in each.examples),
        commands=tuple(COMMANDS),
    )
    made.add_argument("command", choices=OneOf(tuple(COMMANDS)), metavar="COMMAND", help=", ".join(COMMANDS))
    return made


PARSERS: Parsers = {
    "specpair simulator": parser,
    **{f"specpair simulator {name}": each.parser for name, each in COMMANDS.items()},
}


def main() -> int:
    """Run the command of this process. Returns its exit status, as `run` does."""
    collect_seldom()
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Run a command. Returns its exit status: 1 for an error that it told; exits with 2 for wrong arguments."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        parser().parse([*arguments])  # shows help or the version, or refuses
        return 0
    options = command.parser().parse([*arguments[1:]])
    start.catch_interrupts()
    return command.run(options)
