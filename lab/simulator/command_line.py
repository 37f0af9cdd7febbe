"""The command line of `specpair simulator`, with the commands that run nothing: `init`, `check`, `schema`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.simulator.commands.capacity import CAPACITY
from lab.simulator.commands.command import ERRORS, SimulatorCommand, complain
from lab.simulator.commands.run import RUN
from lab.simulator.commands.search import SEARCH
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import read
from lab.simulator.results.replications import collect_seldom
from specpair.command_line import start
from specpair.command_line.parser import OneOf, Parser, Parsers


def example() -> str:
    """The commented example of a configuration."""
    return Path(__file__).with_name("example.yaml").read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration, for editors and other programs."""
    return Configuration.model_json_schema()


def _init(options: argparse.Namespace) -> int:
    file: Path = options.file
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(example())
    except FileExistsError:
        return complain(f"{file} is there already: name another file")
    print(f"{file} is written: change it to your fleet, then run it: specpair simulator run {file}")
    return 0


def _check(options: argparse.Namespace) -> int:
    read(options.file)
    print(f"{options.file} is valid")
    return 0


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(schema(), indent=2))
    return 0


INIT = SimulatorCommand(
    "init",
    "[FILE]",
    "Writes a commented example of a configuration.",
    _init,
    lambda parser: parser.add_argument(
        "file", nargs="?", type=Path, default=Path("fleet.yaml"), metavar="FILE", help="default: fleet.yaml"
    ),
    ("specpair simulator init fleet.yaml",),
)
CHECK = SimulatorCommand(
    "check",
    "FILE",
    "Names the first mistake in a configuration, with its line.",
    _check,
    lambda parser: parser.add_argument("file", type=Path, metavar="FILE", help="a configuration"),
    ("specpair simulator check fleet.yaml",),
)
SCHEMA = SimulatorCommand(
    "schema",
    "[FLAGS]",
    "Prints the JSON Schema of a configuration, for editors and other programs.",
    _schema,
    lambda parser: None,
    ("specpair simulator schema",),
)
COMMANDS = {each.name: each for each in (INIT, CHECK, SCHEMA, RUN, SEARCH, CAPACITY)}


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
    """Run a command. Returns its exit status: 1 after an error message; exits with 2 for wrong arguments."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        parser().parse([*arguments])  # shows help or the version, or refuses
        return 0
    options = command.parser().parse([*arguments[1:]])
    start.catch_interrupts()
    try:
        return command.run(options)
    except ERRORS as error:
        return complain(error)
    except OSError as error:
        return complain(f"{error.filename} cannot be written: {error.strerror or error}")
