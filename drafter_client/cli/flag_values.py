"""Types of the flags' values: each reads the text of a flag, and refuses a bad one with the reason."""

import argparse
from collections.abc import Callable
from pathlib import Path

from command_line.given_values import home, readable
from http_service.hosts import read_hosts
from http_service.origins import read_origins


def path(text: str) -> Path:
    """A path. An empty one is refused: it would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: name a file or a folder")
    return home(text)


def hosts(text: str) -> str:
    """Names of hosts, separated by commas."""
    return _given(text, read_hosts)


def origins(text: str) -> str:
    """Origins of web pages, separated by commas."""
    return _given(text, read_origins)


def _given(text: str, read: Callable[[str], object]) -> str:
    """`text`, if `read` can read it."""
    try:
        return readable(read)(text)
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


def between(low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high or (open_low and value == low) or (open_high and value == high):
            lower, upper = "above" if open_low else "at least", "below" if open_high else "at most"
            raise argparse.ArgumentTypeError(f"must be {lower} {low} and {upper} {high}")
        return value

    return parse
