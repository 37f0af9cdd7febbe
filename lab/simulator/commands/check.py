"""The command `check`: names the first mistake in a configuration."""

import argparse
from pathlib import Path

from lab.simulator.commands.command import ERRORS, Command, complain
from lab.simulator.configuration.reading import read
from lab.simulator.running.setting import setting_of
from specpair.command_line.parser import Parser


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a configuration")


def _run(options: argparse.Namespace) -> int:
    try:
        setting_of(read(options.file), seed=0)
    except ERRORS as error:
        return complain(error)
    print(f"{options.file} is valid")
    return 0


CHECK = Command(
    "check",
    "FILE",
    "Names the first mistake in a configuration, with its line.",
    _run,
    _add_arguments,
    ("specpair simulator check fleet.yaml",),
)
