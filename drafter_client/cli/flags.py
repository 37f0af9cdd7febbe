"""Flags of the drafter that several commands share, and types of flags that are no options: each reads the text of a
flag, and refuses a bad one with the reason. `commands` says which command has which."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from drafter_client.options import Options
from drafter_client.program_options import ENGINE, ProgramOptions
from specpair.command_line import given_values
from specpair.command_line.options import add_option, add_options
from specpair.command_line.parser import Switch


def lasting_flags(parser: argparse.ArgumentParser, *titles: str) -> None:
    """Groups of the flags of the program."""
    for title in titles:
        add_options(parser.add_argument_group(title), ProgramOptions)


def draft_flags(parser: argparse.ArgumentParser, *, modes: bool = False) -> argparse._ArgumentGroup:
    """Flags of drafting here, and of the draft model's engine. `modes`: include the choice of the mode."""
    draft = parser.add_argument_group("drafting")
    if modes:
        add_options(draft, Options, ["mode"])
        add_options(draft, ProgramOptions, ["remember"])
    add_options(draft, ProgramOptions, ["draft_model", "draft_hf", "draft_weights"])
    if modes:
        add_options(draft, Options, ["draft_n"])
    add_options(draft, ProgramOptions, ["branches", "translate"])
    add_options(draft, ProgramOptions, ["draft_corpus"])
    add_options(draft, Options, ["lookup", "lockstep"])
    engine_flags(parser.add_argument_group("engine of the draft model"))
    return draft


def engine_flags(group: argparse._ArgumentGroup, **others: Mapping[str, Any]) -> None:
    """`others`: what a flag says in another way than its option."""
    add_options(group, ProgramOptions, ["backend"], **others)
    for option in ENGINE.values():
        add_option(group, option)


def text_flags(parser: argparse.ArgumentParser, *, many: bool = False) -> None:
    """Flags of the text to write. `many`: include those of drafted and of many texts."""
    text = parser.add_argument_group("text")
    one_or_many = text.add_mutually_exclusive_group()
    one_or_many.add_argument("--prompt", metavar="TEXT", help="text to continue; without it, standard input is read")
    if many:
        one_or_many.add_argument(
            "--prompt-file", type=path, metavar="FILE", help="many prompts: one a line, or JSON Lines (*.jsonl)"
        )
    add_options(text, Options)
    chat_flags(text)
    if many:
        prediction = text.add_mutually_exclusive_group()
        prediction.add_argument(
            "--prediction", metavar="TEXT", help="what the text is expected to be: also draft from this, where it fits"
        )
        prediction.add_argument(
            "--prediction-file", type=path, metavar="FILE", help="the same from a file, for example one to be edited"
        )
        group = parser.add_argument_group("many prompts")
        add_options(group, ProgramOptions, ["concurrency"])
        group.add_argument(
            "--output", type=path, metavar="FILE", help="write results there, as JSON Lines; the same command continues"
        )


def chat_flags(group: argparse._ArgumentGroup) -> None:
    add_options(group, ProgramOptions, ["chat"])
    group.add_argument("--system", metavar="TEXT", help="system message, with --chat")


def option_flags(parser: argparse.ArgumentParser, *titles: str) -> None:
    """Groups of the flags of a text's options."""
    for title in titles:
        add_options(parser.add_argument_group(title), Options)


def output_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("output")
    group.add_argument("--stats", action=Switch, help="show all metrics at the end, not only the main ones")
    group.add_argument("--json", action=Switch, help="one JSON object a text on standard output, nothing else there")
    group.add_argument(
        "--stream", action=Switch, default=True, help="print the text while it comes, not at the end (default: yes)"
    )
    return group


def profile_flag(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--profile", type=path, metavar="DIR", help="record the run in this folder; see 'report'")
    group.add_argument("--profile-text", action=Switch, help="record the text, too, not only the ids of its tokens")


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
