"""The command line of `python -m simulator`."""

import sys
from collections.abc import Sequence

from simulator.commands.capacity import CAPACITY
from simulator.commands.check import CHECK
from simulator.commands.compare import COMPARE
from simulator.commands.init import INIT
from simulator.commands.run import RUN
from simulator.commands.schema import SCHEMA
from simulator.commands.search import SEARCH
from simulator.processes import collect_seldom
from specpair.command_line import start
from specpair.command_line.parser import OneOf, Parser

COMMANDS = {each.name: each for each in (INIT, CHECK, SCHEMA, RUN, SEARCH, CAPACITY, COMPARE)}


def parser() -> Parser:
    """The parser of the first word. Each command has one of its own."""
    made = Parser(
        "simulator",
        usage="COMMAND …",
        description="Simulates a fleet of drafters and verifiers in virtual time. "
        + " ".join(f"'{each.name}' {each.does[0].lower()}{each.does[1:]}" for each in COMMANDS.values()),
        examples=tuple(example for each in COMMANDS.values() for example in each.examples),
        commands=tuple(COMMANDS),
    )
    made.add_argument("command", choices=OneOf(tuple(COMMANDS)), metavar="COMMAND", help=", ".join(COMMANDS))
    return made


def main(given: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit status: 1 for an error that it told; exits with 2 for wrong arguments."""
    arguments = sys.argv[1:] if given is None else [*given]
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        parser().parse(arguments)  # shows help or the version, or refuses
        return 0
    options = command.parser().parse(arguments[1:])
    start.catch_interrupts()
    if given is None:  # this process is the command's own
        collect_seldom()
    return command.run(options)
