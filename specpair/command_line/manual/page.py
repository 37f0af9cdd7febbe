"""A manual page in the macros of man(7), made from a parser: its usage, its flags in their groups, its examples."""

import argparse
import re
from collections.abc import Iterator, Sequence
from datetime import date

from specpair.command_line.parser import Parser, meaning, placeholder


def page(path: str, parser: Parser, others: Sequence[str], version: str, day: date) -> str:
    """The page of the command `path`, such as "drafter chat".

    `others`: the program's other commands, which the page names.
    `day`: of the page.
    """
    name, about = file_name(path), " ".join((parser.description or "").split())
    first = about.partition(". ")[0].removesuffix(".")
    lines = [
        f'.TH {_word(name.upper())} 1 "{day:%Y-%m-%d}" "specpair {version}" "specpair"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(first[:1].lower() + first[1:])}",
        ".SH SYNOPSIS",
        *_synopsis(parser),
        ".SH DESCRIPTION",
        _line(about),
    ]
    for group in parser._action_groups:
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if shown:
            lines += [
                f".SH {_text((group.title or 'options').upper())}",
                *(line for each in shown for line in _flag(each)),
            ]
    lines += [".SH EXAMPLES", ".EX", *map(_line, _examples(parser)), ".EE"]
    if others:
        lines += [".SH SEE ALSO", *_seen(others)]
    return "\n".join(lines) + "\n"


def file_name(path: str) -> str:
    """The name of a command's page, as `man` is asked for it: "drafter-chat"; `man drafter chat` finds it, too."""
    return path.replace(" ", "-")


def _synopsis(parser: Parser) -> Iterator[str]:
    for at, line in enumerate((parser.usage or "").splitlines()):
        if at:
            yield ".br"
        program, _, rest = line.strip().partition(" ")
        yield f".B {_text(program)}"
        yield _line(re.sub(" +", " ", rest))


def _flag(action: argparse.Action) -> Iterator[str]:
    """A tagged paragraph: the spellings of a flag with the placeholder of its value, and what it means."""
    names, value = [f"\\fB{_text(name)}\\fR" for name in action.option_strings], placeholder(action)
    yield ".TP"
    yield " ".join(each for each in (", ".join(names), value and f"\\fI{_text(value)}\\fR") if each)
    yield _line(meaning(action))


def _examples(parser: Parser) -> list[str]:
    return [line.strip() for line in (parser.epilog or "").splitlines()[1:]]


def _seen(others: Sequence[str]) -> Iterator[str]:
    for at, each in enumerate(others):
        yield f".BR {_text(file_name(each))} (1){',' if at < len(others) - 1 else ''}"


def _line(text: str) -> str:
    """A line of text, which is no request whatever it begins with."""
    escaped = _text(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _text(text: str) -> str:
    """A text in which what the formatter reads otherwise stands for itself."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return plain.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")


def _word(text: str) -> str:
    return _text(text).replace(" ", "\\ ")
