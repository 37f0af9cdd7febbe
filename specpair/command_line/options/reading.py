"""Reads the value of an option from the text of a flag, a variable or a file, and tells what is wrong with it."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from specpair.command_line.given_values import ascending, path
from specpair.command_line.parser import unknown_choice
from specpair.options.option import AUTO, Option, options_of


def read(option: Option, text: str) -> Any:
    """The value in `text`; `AUTO` stays. Raises ValueError, which says what is wrong."""
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


# By the type of the option's values.
_READERS: dict[Any, Callable[[str], Any]] = {Path: path, tuple: ascending}


def flag_reader(option: Option) -> Callable[[str], Any]:
    """`read` as argparse wants it: it raises ArgumentTypeError."""
    return partial(_read_flag, option)


def _read_flag(option: Option, text: str) -> Any:
    try:
        return read(option, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def given(cls: type, settings: Any) -> dict[str, Any]:
    """The values of the options of `cls` for which there are attributes in `settings`: parsed flags, or settings."""
    options = {name: each for name, each in options_of(cls).items() if hasattr(settings, each.setting)}
    return {name: value_of(each, getattr(settings, each.setting)) for name, each in options.items()}


def value_of(option: Option, value: Any) -> Any:
    """The value of an option whose flag or setting has this one."""
    if option.about.items is not None:
        return option.about.items(value)
    return None if option.about.auto and value == AUTO else value
