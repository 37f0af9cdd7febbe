"""The command `init`: writes the example of a configuration."""

import argparse
from pathlib import Path

from lab.simulator.commands.command import Command, complain
from lab.simulator.configuration.example import example
from specpair.command_line.parser import Parser


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, default=Path("fleet.yaml"), metavar="FILE", help="default: fleet.yaml"
    )


def _run(options: argparse.Namespace) -> int:
    file: Path = options.file
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(example())
    except FileExistsError:
        return complain(f"{file} is there already: name another file")
    except OSError as error:
        return complain(f"{file} cannot be written: {error.strerror or error}")
    print(f"{file} is written: change it to your fleet, then run it: specpair simulator run {file}")
    return 0


INIT = Command(
    "init",
    "[FILE]",
    "Writes a commented example of a configuration.",
    _run,
    _add_arguments,
    ("specpair simulator init fleet.yaml",),
)
