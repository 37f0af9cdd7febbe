"""The commands of `python -m simulator`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.configuration.example import example, schema
from simulator.configuration.reading import BadConfiguration, read
from specpair.command_line import start
from specpair.command_line.parser import OneOf, Parser

_COMMANDS = ("init", "check", "schema")


def parser() -> Parser:
    made = Parser(
        "simulator",
        usage="init [FILE]\ncheck FILE\nschema",
        description="Simulates a fleet of drafters and verifiers in virtual time. 'init' writes a commented example of "
        "a configuration, 'check' names the first mistake in one, 'schema' prints the JSON Schema of the file.",
        examples=("python -m simulator init fleet.yaml", "python -m simulator check fleet.yaml"),
        commands=_COMMANDS,
    )
    made.add_argument("command", choices=OneOf(_COMMANDS), metavar="COMMAND", help=", ".join(_COMMANDS))
    made.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a configuration (init: default fleet.yaml)")
    return made


def main(given: Sequence[str] | None = None) -> int:
    """Run a command. Returns 1 for a file that is not valid or cannot be written; 2 for wrong arguments."""
    made = parser()
    options = made.parse(sys.argv[1:] if given is None else given)
    start.catch_interrupts()
    if options.command == "schema":
        print(json.dumps(schema(), indent=2))
        return 0
    if options.command == "init":
        return _init(options.file or Path("fleet.yaml"))
    if options.file is None:
        made.error("check wants a FILE")
    try:
        read(options.file)
    except BadConfiguration as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    print(f"{options.file} is valid")
    return 0


def _init(file: Path) -> int:
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(example())
    except FileExistsError:
        print(f"simulator: {file} is there already: name another file", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"simulator: {file} cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    print(f"{file} is written: change it to your fleet, then check it: python -m simulator check {file}")
    return 0
