"""Types of flags that are no options: each reads the text of a flag, and refuses a bad one with the reason."""

import argparse
from collections.abc import Callable
from pathlib import Path

from specpair.command_line import given_values


def path(text: str) -> Path:
    """A path. An empty one is refused: it would be the current folder."""
    try:
        return given_values.path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def lengths(text: str) -> list[int]:
    """Draft lengths, in ascending order, from a list of numbers and ranges such as 1,2,4-8."""
    found: set[int] = set()
    for part in text.split(","):
        low, to, high = part.partition("-")
        first = whole(0, 64)(low)
        last = whole(0, 64)(high) if to else first
        if last < first:
            raise argparse.ArgumentTypeError(f"{part!r} ends before it begins")
        found.update(range(first, last + 1))
    return sorted(found)


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, got {value}")
        if high is not None and value > high:
            raise argparse.ArgumentTypeError(f"must be at most {high}, got {value}")
        return value

    return parse
