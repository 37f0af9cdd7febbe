"""What the commands of a program accept, read from their parsers: flags, arguments, and the kind of each value."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from specpair.command_line.options.flags import option_of
from specpair.command_line.parser import Parser, meaning

Parsers = Mapping[str, Callable[[], Parser]]  # by command, such as "drafter bench report"; the program itself is first

# The placeholders of values that are paths.
_FILES, _FOLDERS = {"FILE", "PATH"}, {"DIR", "FOLDER"}
_LONGEST = 72  # characters of a description


class Kind(Enum):
    """What completes a value."""

    TEXT = "text"  # nothing
    FILE = "file"
    FOLDER = "folder"
    CHOICE = "choice"


@dataclass(frozen=True)
class Value:
    """What a flag takes, or an argument is."""

    kind: Kind
    name: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flag:
    """A flag with all its spellings."""

    names: tuple[str, ...]
    does: str
    value: Value | None  # None: it takes none
    repeats: bool


@dataclass(frozen=True)
class Argument:
    """An argument without a flag."""

    value: Value
    optional: bool
    repeats: bool


@dataclass(frozen=True)
class Command:
    """A command, its arguments, and the words that lead to commands below it."""

    path: str  # with its program's name, as "drafter bench report"
    does: str
    flags: tuple[Flag, ...]
    arguments: tuple[Argument, ...]
    commands: tuple[str, ...]


def accepted(parsers: Parsers) -> list[Command]:
    """The commands of a program."""
    return [_command(path, make(), parsers) for path, make in parsers.items()]


def _command(path: str, parser: Parser, parsers: Parsers) -> Command:
    shown = [action for action in parser.actions() if action.help != argparse.SUPPRESS]
    below = tuple(each.rpartition(" ")[2] for each in parsers if each.rpartition(" ")[0] == path)
    return Command(
        path,
        brief(parser.description or ""),
        tuple(_flag(action) for action in shown if action.option_strings),
        # The words of commands are the first argument of a program that does nothing without one.
        tuple(_argument(action) for action in shown if not action.option_strings and not below),
        below,
    )


def _flag(action: argparse.Action) -> Flag:
    value = None if action.nargs == 0 else _value(action)
    return Flag(tuple(action.option_strings), brief(meaning(action)), value, isinstance(action, argparse._AppendAction))


def _argument(action: argparse.Action) -> Argument:
    return Argument(_value(action), action.nargs in ("?", "*"), action.nargs == "*")


def _value(action: argparse.Action) -> Value:
    name, option = str(action.metavar or action.dest), option_of(action)
    choices = tuple(action.choices or (() if option is None else option.choices))
    if choices:
        return Value(Kind.CHOICE, action.dest, choices)
    return Value(Kind.FILE if name in _FILES else Kind.FOLDER if name in _FOLDERS else Kind.TEXT, name)


def brief(text: str) -> str:
    """The beginning of a text that fits beside a completion: its first sentence or clause, without a full stop."""
    line = " ".join(text.split())
    for end in (". ", "; ", " (default"):
        line = line.partition(end)[0]
    line = line.removesuffix(".")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rpartition(" ")[0].rstrip(",") + "…"
