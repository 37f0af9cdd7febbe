"""A notation: how models of one style write calls of tools. Each class in `notations` is one.

And what notations read alike: whitespace, literals, names of tools."""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
# Takes one character at a time; an empty string is the end of the text. It may yield a pattern: it takes what that
# matches at once.
Reading = Generator[re.Pattern[str] | None, str, T]
Tools = Mapping[str, Mapping[str, Any]]  # the JSON schemas of parameters, by the names of tools


class Broken(Exception):
    """With the last character, or the end of the text, what was read is no call."""


class Calls(Protocol):
    """What a notation tells while it reads a call: `begin`, `grow` as often as need be, `end`."""

    @property
    def tools(self) -> Tools:
        """The tools that may be called."""

    def begin(self, name: str) -> None:
        """A call of a tool. It cannot be taken back: the name is known, and the arguments begin."""

    def grow(self, text: str) -> None:
        """A piece of the JSON text of the arguments."""

    def end(self) -> None:
        """The call is whole."""


@dataclass(frozen=True)
class Parameters:
    """Arguments one by one, each as `begin` KEY `middle` VALUE `end`. A value that is no string is JSON.

    Strings stand as they are: one that holds `end`, or a line that begins with a marker, may be read as ending there.
    """

    begin: str
    middle: str
    end: str


@dataclass(frozen=True)
class BareKeys:
    """Arguments as JSON, but keys stand bare and strings between two `quote`, as they are.

    A key holds no punctuation of JSON, a string no `quote`.
    """

    quote: str


@dataclass(frozen=True)
class Keywords:
    """Arguments as Python writes them: KEY `middle` VALUE, with `between` between them. A key is an identifier."""

    middle: str
    between: str


@dataclass(frozen=True)
class Writing:
    """How a style writes calls: `before` CALL (`between` CALL)* `after`; CALL is `begin` NAME `middle` ARGUMENTS `end`.

    A grammar of calls is built from it, and the notation reads what such a grammar lets through. Where NAME
    stands in a JSON object, it is the content of a JSON string.

    `arguments`: how these are written; None: as a JSON object.
    `trigger`: what only a call begins with. None: nothing tells a call from other JSON before its name.
    `tokens`: markers that models have as tokens of their own, often as control tokens. The text must show them.
    `plain`: whether `{"name": NAME, "arguments": ARGUMENTS}` alone is read as a call, too.
    """

    begin: str
    middle: str
    end: str
    between: str
    before: str = ""
    after: str = ""
    arguments: Parameters | BareKeys | Keywords | None = None
    trigger: str | None = None
    tokens: tuple[str, ...] = ()
    plain: bool = False


class Notation(Protocol):
    """How a style writes calls, and how these are read.

    `anywhere`: texts that may begin calls wherever they stand.
    `at_line`: texts that may begin calls at the beginning of a line, of the text, and behind a call.
    """

    anywhere: tuple[str, ...]
    at_line: tuple[str, ...]

    def read(self, opener: str, calls: Calls) -> Reading[str]:
        """Read calls behind `opener`, one of the above. Returns what was read and does not belong to them.

        Raises Broken where the text ceases to be calls.
        """

    def writing(self) -> Writing:
        """How calls are written, for grammars."""


Tell = Callable[[str], object]  # takes text that was read

_WHITESPACE = frozenset(" \t\r\n")
_LONGEST_NAME = 256  # characters


def ignored(_: str) -> None:
    """Takes text that nobody wants."""


def blank(tell: Tell = ignored, c: str | None = None) -> Reading[str]:
    """Read whitespace. Returns the first character that is none. `c`: a character that was read already."""
    if c is None:
        c = yield None
    while c in _WHITESPACE:
        tell(c)
        c = yield None
    return c


def literal(text: str) -> Reading[None]:
    """Read this text. Raises Broken if another stands there."""
    for wanted in text:
        if (yield None) != wanted:
            raise Broken


def one_of(texts: Sequence[str], c: str | None = None) -> Reading[tuple[str | None, str]]:
    """Read whitespace and one of these texts. Returns the text, or None and what was read instead.

    The end of the text counts as one of them that was cut: nothing was read instead.
    """
    seen = (yield None) if c is None else c
    last = seen
    while last:
        found = seen.lstrip()
        if found in texts:
            return found, ""
        if found and not any(text.startswith(found) for text in texts):
            return None, seen
        last = yield None
        seen += last
    return None, ""


def tool_name(calls: Calls, stops: str, c: str | None = None) -> Reading[tuple[str, str]]:
    """Read the name of a tool up to one of the characters `stops`, and return both. Raises Broken if there is none.

    `c`: a character that was read already.
    """
    name = ""
    while True:
        if c is None:
            c = yield None
        if c and c in stops and name.strip() in calls.tools:
            return name.strip(), c
        name += c
        begun = name.strip()
        if not c or len(name) > _LONGEST_NAME or not any(tool.startswith(begun) for tool in calls.tools):
            raise Broken
        c = None
