"""Options as flags: the same types, ranges, words and defaults on the command line, in variables and in files."""

import argparse
from collections.abc import Callable, Collection
from typing import Any

from command_line.parser import OneOf, Switch, flag
from specpair.options.option import Option, options_of

AUTO = "auto"  # the word for None, where an option has one


def add_options(group: Any, cls: type, names: Collection[str] | None = None, **defaults: Any) -> None:
    """Add the flags of options of `cls` to an argument group: those in `names`, or of the group's title if it is None.

    `defaults`: by name, other ones than the options'.
    """
    for name, option in options_of(cls).items():
        if name in names if names is not None else option.about.group == group.title:
            _add(group, option, defaults.get(name, option.default))


def given(cls: type, flags: argparse.Namespace) -> dict[str, Any]:
    """The values of the options of `cls` for which there are flags."""
    values = {name: getattr(flags, name) for name in options_of(cls) if hasattr(flags, name)}
    return {name: value_of(options_of(cls)[name], value) for name, value in values.items()}


def value_of(option: Option, value: Any) -> Any:
    """The value of an option whose flag has this one."""
    if option.about.items is not None:
        return option.about.items(value)
    return None if option.about.auto and value == AUTO else value


def reader(option: Option) -> Callable[[str], Any]:
    """What reads the text of a flag, a variable or a file. It raises ArgumentTypeError."""

    def read(text: str) -> Any:
        if option.about.auto and text == AUTO:
            return text
        try:
            return _read(option, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _read(option: Option, text: str) -> Any:
    if option.about.item is not None:
        return option.about.item(text)
    if option.kind not in (int, float):
        value, of = text, "text"
    else:
        of = "whole number" if option.kind is int else "number"
        try:
            value = option.kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a {of}") from None
        if not option.within(value):
            raise ValueError(f"must be {option.bounds}, got {text}")
    longest = option.about.longest
    if longest is not None and len(text) > longest:
        raise ValueError(f"must have at most {longest} characters, got {len(text)}")
    return value


def _add(group: Any, option: Option, default: Any) -> None:
    name, about = flag(option.name), option.about
    if about.auto and default is None:
        default = AUTO
    shown = about.usually or _shown(default)
    words = f"{about.words}{f' (default: {shown})' if shown else ''}".replace("%", "%%")
    if option.kind is bool:
        group.add_argument(name, action=Switch, default=default, help=words)
    elif option.names_a_choice:
        choices = OneOf([each.value for each in option.kind])
        group.add_argument(name, choices=choices, default=default.value, help=words)
    elif about.item is not None:
        words = f"{words}; may be given several times"
        read = reader(option)
        group.add_argument(name, metavar=about.placeholder, type=read, action="append", default=[], help=words)
    else:
        group.add_argument(name, metavar=about.placeholder, type=reader(option), default=default, help=words)


def _shown(value: Any) -> str:
    """A default as one would write it behind the flag; empty: there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ("", (), {}):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))
