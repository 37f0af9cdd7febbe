"""Flags that several commands have."""

import argparse
from typing import Any

from backends.machine import cores


def whole(given: str) -> int:
    """A whole number of at least 1, as the value of a flag."""
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {given!r}")
    return int(given)


def add_set(parser: Any) -> None:
    """Add `--set` to a parser, or to a group of it."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace a key, such as workload.rate_rps=4 or devices.verifiers.big.count=3; may be given more than once",
    )


def add_jobs(parser: Any) -> None:
    """Add `--jobs` to a parser, or to a group of it."""
    parser.add_argument("--jobs", type=whole, default=cores(), metavar="N", help="processes (default: one a core)")
