"""The command `man` of each program: writes its manual pages."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from specpair.command_line import version
from specpair.command_line.completion.accepted import Parsers
from specpair.command_line.given_values import path
from specpair.command_line.manual.page import file_name, page
from specpair.command_line.parser import Parser

_DAY = "SOURCE_DATE_EPOCH"  # seconds since 1970: the day of what is built, where two builds must be the same


def parser(program: str) -> Parser:
    """The parser of `PROGRAM man`."""
    made = Parser(
        f"{program} man",
        usage="DIR",
        description=f"Write the manual pages of {program}'s commands to a folder, such as the one that man reads.",
        examples=(f"{program} man ~/.local/share/man/man1", f"{program} man . && man -l {program}.1"),
    )
    made.add_argument("folder", type=_folder, metavar="DIR", help="the folder, which is made if it is not there")
    return made


def _folder(text: str) -> Path:
    try:
        return path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(program: str, arguments: Sequence[str], parsers: Callable[[], Parsers]) -> int:
    """Run the command. Returns the exit status: 1 if a page cannot be written. Exits with 2 for bad arguments.

    `parsers`: those of all commands of the program.
    """
    options = parser(program).parse(arguments)
    folder: Path = options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages(parsers(), _today(os.environ)):
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"{program}: {error.filename} cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def pages(parsers: Parsers, day: date) -> Iterator[tuple[str, str]]:
    """The file name and the text of each page."""
    installed = version.installed()
    for command, make in parsers.items():
        others = [each for each in parsers if each != command]
        yield f"{file_name(command)}.1", page(command, make(), others, installed, day)


def _today(environment: Mapping[str, str]) -> date:
    given = environment.get(_DAY, "")
    return (datetime.fromtimestamp(int(given), UTC) if given.isdecimal() else datetime.now(UTC)).date()
