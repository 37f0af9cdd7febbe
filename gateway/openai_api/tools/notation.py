"""A notation: how models of one style write calls of tools. Each style is a class: see `styles`.

Also what all notations read alike: whitespace, literals, names of tools.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
# Takes one character at a time; an empty string is the end of the text. It may yield a pattern: it takes what that
# matches at once.
Reading = Generator[re.Pattern[str] | None, str, T]
Tools = Mapping[str, Mapping[str, Any]]  # the JSON schemas of parameters, by the names of tools


class Broken(Exception):
    """With the last character, or the end of the text, what was read is no call."""


@dataclass(frozen=True, slots=True)
class Content:
    """Text beside calls. It is never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """A call of one of the given tools. `index`: calls of a text are counted from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsGrew:
    """The next piece of the arguments. All pieces of a call that is whole are the JSON text of an object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The last event of a call. `whole`: false if the text broke off, or was no call from there on."""

    index: int
    whole: bool = True


Event = Content | CallBegan | ArgumentsGrew | CallEnded


class Calls:
    """What is told of one text: calls by notations (`begin`, `grow` as often as need be, `end`), content by the reader.

    `promised`: something of a call was told since this was last set to false.
    `calls`: how many there are, a broken one that was told included.
    """

    def __init__(self, tools: Tools, *, whole: bool) -> None:
        """`tools`: the tools that may be called.

        `whole`: nothing of a call is told before it has ended.
        """
        self.tools, self.promised, self.calls = tools, False, 0
        self._whole = whole
        self._events: list[Event] = []
        self._call: list[Event] = []  # of a call, not told yet
        self._told = False  # whether something of the present call was
        self._blank = ""  # whitespace that is content if text follows, and markup if a call does
        self._spoken = False  # whether there is content since the last call

    def content(self, text: str) -> None:
        """Text beside calls."""
        kept = "" if not self._spoken and text.isspace() else text.rstrip("\n")
        if not kept:
            self._blank += text
            return
        self._events.append(Content(self._blank + kept))
        self._blank, self._spoken = text[len(kept) :], True

    def begin(self, name: str) -> None:
        """A call of a tool. It is certain with the first piece of its arguments, and cannot be taken back then."""
        self._call = [CallBegan(self.calls, name)]

    def grow(self, text: str) -> None:
        """A piece of the JSON text of the arguments."""
        self._call.append(ArgumentsGrew(self.calls, text))
        if not self._whole:
            self._tell()

    def end(self) -> None:
        """The call is whole."""
        self._call.append(CallEnded(self.calls))
        self._tell()
        self.calls, self._told = self.calls + 1, False

    def broken(self) -> None:
        """What was read is no call from here on."""
        if self._told:
            self._events.append(CallEnded(self.calls, whole=False))
            self.calls, self._told = self.calls + 1, False
        self._call = []

    def finish(self) -> None:
        """The text has ended."""
        if self._blank and (self._spoken or not self.calls):
            self._events.append(Content(self._blank))
        self._blank = ""

    def take(self) -> list[Event]:
        """The events since the last time. Pieces that follow each other are one."""
        taken: list[Event] = []
        for _, group in groupby(self._events, lambda event: (type(event), getattr(event, "index", None))):
            events = list(group)
            text = "".join(event.text for event in events if isinstance(event, Content | ArgumentsGrew))
            match events[0]:
                case Content():
                    taken.append(Content(text))
                case ArgumentsGrew(index):
                    taken.append(ArgumentsGrew(index, text))
                case _:
                    taken += events
        self._events = []
        return taken

    def _tell(self) -> None:
        self._events += self._call
        self._call, self._blank, self._spoken = [], "", False
        self._told = self.promised = True


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
