"""The commands of `specpair` that are programs of their own, by module: imported only when they run.

Some are in packages that import this one, so they are named here, and nothing is imported from them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # this module is imported before Ctrl-C is prepared for
    from specpair.command_line.parser import Parser

PROGRAMS = {"router": "gateway.router.app", "doctor": "drafter_client.cli.doctor"}


def parser_of(command: str) -> "Parser":
    """The parser of a program whose module has a function `parser`. Imports the module."""
    made: Parser = import_module(PROGRAMS[command]).parser()
    return made
