"""Makes command-line flags from the fields of options, and reads their values."""

import argparse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from specpair.command_line.parser import Switch, flag, unknown_choice
from specpair.command_line.setting_values import ascending, path
from specpair.options.option import AUTO, Option, options_of

# By the type of the option's values.
_READERS: dict[Any, Callable[[str], Any]] = {Path: path, tuple: ascending}


def read(option: Option, text: str) -> Any:
    """The value in `text`; `AUTO` stays. Raises ValueError with the reason."""
    if option.about.auto and text == AUTO:
        return text
    if option.about.item is not None:
        return option.about.item(text)
    if option.about.in_file:
        return _value_in(option, text)
    return _value(option, text)


def _value_in(option: Option, name: str) -> Any:
    """The value in a file. Raises ValueError."""
    try:
        text = path(name).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not UTF-8 text") from None
    try:
        return _value(option, text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _value(option: Option, text: str) -> Any:
    wrong = unknown_choice(text, option.choices) if option.choices else None
    if wrong is not None:
        raise ValueError(wrong)
    if option.about.check is not None:
        option.about.check(text)
    longest = option.about.longest
    if longest is not None and len(text) > longest:
        raise ValueError(f"must have at most {longest} characters, got {len(text)}")
    if option.about.reads is not None:
        return option.about.reads(text)
    return _READERS.get(option.kind, str)(text) if option.kind not in (int, float) else _number(option, text)


def _number(option: Option, text: str) -> float:
    try:
        value: float = option.kind(text)
    except ValueError:
        number = "whole number" if option.kind is int else "number"
        raise ValueError(
            f"{text!r} is neither auto nor a {number}" if option.about.auto else f"{text!r} is not a {number}"
        ) from None
    if not option.within(value):
        raise ValueError(f"must be {option.bounds}, got {text}")
    return value


def flag_reader(option: Option) -> Callable[[str], Any]:
    """`read` for argparse: raises ArgumentTypeError."""

    def read_flag(text: str) -> Any:
        try:
            return read(option, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_flag


def option_values(cls: type, settings: Any) -> dict[str, Any]:
    """The values of the options of `cls` that `settings` (parsed flags, or settings) has as attributes."""
    options = {name: each for name, each in options_of(cls).items() if hasattr(settings, each.setting)}
    return {name: value_of(each, getattr(settings, each.setting)) for name, each in options.items()}


def value_of(option: Option, value: Any) -> Any:
    """The value of an option by the value of its flag or setting."""
    if option.about.items is not None:
        return option.about.items(value)
    return None if option.about.auto and value == AUTO else value


def add_options(group: Any, cls: type, names: Collection[str] | None = None, **others: Mapping[str, Any]) -> None:
    """Add the flags of options of `cls` to an argument group: those in `names`; None: those under the group's title.

    Flags that are settings, too, give the text that was given: what makes the settings reads it.
    `others`: by name, what a flag says in another way than its option: keys of `About`, and `default`.
    """
    for name, option in options_of(cls).items():
        if name in names if names is not None else option.about.group == group.title:
            add_option(group, option.saying(**others.get(name, {})))


def add_option(group: Any, option: Option) -> None:
    """Add the flag of an option to an argument group."""
    name, about = flag(option.setting), option.about
    shown = about.usually or shown_default(option.usual)
    words = f"{about.words}{f' (default: {shown})' if shown else ''}".replace("%", "%%")
    how: dict[str, Any] = {"dest": option.setting, "default": option.usual, "help": words}
    if option.kind is bool:
        action = group.add_argument(name, action=Switch, **how)
    elif about.item is not None:
        how |= {"help": f"{words}; may be given several times", "default": []}
        action = group.add_argument(name, metavar=about.placeholder, type=flag_reader(option), action="append", **how)
    else:
        if not option.lasts:
            how["type"] = flag_reader(option)
        spelled = [name, about.short] if about.short else [name]
        action = group.add_argument(*spelled, metavar=about.placeholder or _placeholder(option), **how)
    vars(action)["option"] = option
    if about.formerly:
        group.add_argument(flag(about.formerly), help=argparse.SUPPRESS, default=argparse.SUPPRESS)


def _placeholder(option: Option) -> str:
    if option.choices:
        return "{" + ",".join(option.choices) + "}"
    if option.about.auto:
        return "auto|N"
    return "N,N,…" if option.kind is tuple else "N"


def option_of(action: argparse.Action) -> Option | None:
    """The option of this flag; None: the flag has no option."""
    found: Option | None = getattr(action, "option", None)
    return found


def shown_default(value: Any) -> str:
    """A default as written behind the flag; empty: there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ("", (), {}):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))
