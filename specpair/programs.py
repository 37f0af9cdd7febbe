"""The commands that other packages have, imported only when they run: programs below `specpair`, by module,
and those of the lab, as entry points of its distribution, which may not be installed.

The packages import this one, so their commands are named here, and nothing is imported from them.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol, cast

from specpair.extras import MissingExtra, installing_lab

if TYPE_CHECKING:  # this module is imported before Ctrl-C is prepared for
    from specpair.command_line.parser import Parser, Parsers

PROGRAMS = {"router": "gateway.router.app", "doctor": "drafter_client.cli.doctor"}
GROUP = "specpair.commands"  # of the lab's entry points
# Each has a module with `run` and `PARSERS`. All are named here, so that help lists them where the lab is missing.
NAMES = ("drafter bench", "drafter report", "specpair simulator")


def parser_of(command: str) -> "Parser":
    """The parser of a program, by the function `parser` of its module. Imports the module."""
    made: Parser = import_module(PROGRAMS[command]).parser()
    return made


class LabCommand(Protocol):
    """The module of a command. `PARSERS`: of the command and its subcommands, by their whole names."""

    PARSERS: "Parsers"

    def run(self, arguments: Sequence[str]) -> int:
        """Run the command with the arguments behind its name. Returns the exit status. Raises DrafterError."""


def lab_command(program: str, arguments: Sequence[str]) -> LabCommand | None:
    """The imported module of the command that the arguments begin with; None: it is no command of the lab.

    Raises MissingExtra, which says how to install the lab.
    """
    name = " ".join([program, *arguments[:1]])
    if name not in NAMES:
        return None
    found = _installed(name)
    if found is None:
        raise MissingExtra(f"'{name}' is part of the lab, which is not installed: {installing_lab()}")
    return cast(LabCommand, found.load())


def lab_parsers(program: str) -> "Parsers":
    """The parsers of the commands that the lab adds to a program; none if the lab is not installed."""
    found = [_installed(name) for name in NAMES if name.split()[0] == program]
    return {
        name: made for each in found if each is not None for name, made in cast(LabCommand, each.load()).PARSERS.items()
    }


def _installed(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=GROUP, name=name)), None)
