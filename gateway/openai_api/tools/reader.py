"""Reads tool calls from a text as it grows; emits events for content, and for calls once they are certain.

How models of one style write calls is a `Notation`: see `styles`.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol, TypeVar

from gateway.openai_api.detokenizer import beginning

T = TypeVar("T")
# Takes one character at a time; an empty string is the end of the text. It may yield a pattern: it takes what that
# matches at once.
Reading = Generator[re.Pattern[str] | None, str, T]
Tools = Mapping[str, Mapping[str, Any]]  # the JSON schemas of parameters, by the names of tools


class Broken(Exception):
    """The last character, or the text's end, shows that the text is no call."""


@dataclass(frozen=True, slots=True)
class Content:
    """Text beside calls. It is never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """A call of one of the given tools. `index`: calls of a text are counted from 0."""

    index: int
    name: str
    free: bool = False  # whether it has a free text in place of arguments


@dataclass(frozen=True, slots=True)
class ArgumentsGrew:
    """The next piece of the arguments. All pieces of a call that is whole are the JSON text of an object."""

    index: int
    text: str
    free: bool = False  # whether it is of a free text


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The last event of a call. `whole`: false if the text was cut, or ceased to be a call."""

    index: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Thought:
    """Thoughts before an answer. They are never empty."""

    text: str


Event = Content | CallBegan | ArgumentsGrew | CallEnded
AnswerEvent = Thought | Event


@dataclass(frozen=True)
class Parameters:
    """Arguments one by one, each as `begin` KEY `middle` VALUE `end`. A value that is no string is JSON.

    Strings are raw text: one that holds `end`, or a line that begins with a marker, may be read as ending there.
    """

    begin: str
    middle: str
    end: str
    other: str | None = None  # `middle` before a value that is no string, where the style tells them apart


@dataclass(frozen=True)
class BareKeys:
    """Arguments as JSON, but with bare keys, and raw strings between two `quote`.

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
    """

    begin: str
    middle: str
    end: str
    between: str
    before: str = ""
    after: str = ""
    arguments: Parameters | BareKeys | Keywords | None = None  # None: as a JSON object
    trigger: str | None = None  # what only a call begins with. None: nothing tells it from other JSON before its name
    tokens: tuple[str, ...] = ()  # markers that models have as tokens, often as control tokens. The text must show them
    number: bool = False  # whether `:` and a number stand behind NAME
    several: bool = True  # whether there may be several calls
    plain: bool = False  # whether `{"name": NAME, "arguments": ARGUMENTS}` alone is read as a call, too


class Notation(Protocol):
    """How a style writes calls, and how these are read."""

    anywhere: tuple[str, ...]  # texts that may begin calls wherever they stand
    at_line: tuple[str, ...]  # texts that may begin calls at the beginning of a line, of the text, and behind a call

    def read(self, opener: str, calls: "CallReader") -> Reading[str]:
        """Read calls behind `opener`, one of the above. Returns the text that was read beyond them.

        Raises Broken where the text ceases to be calls.
        """

    def writing(self) -> Writing:
        """How calls are written, for grammars."""


_BLOCK = 4096  # characters that are looked at together


class CallReader:
    """Reads a text in parts and emits its events. The result does not depend on how the text is divided.

    Text that may be the beginning of a call is held back until it is known whether it is one: it is written like a
    call of a given tool, and its arguments begin. From there on, the reader emits the arguments as they grow.

    All other text is content, unchanged. Emitted events are final: where a call breaks off, or the end of the text
    cuts it, `CallEnded` says that it is not whole, and the rest of its text is content. With `whole`, the reader
    emits a call only when it has ended, so that a broken call is content from its beginning.

    The reader drops text that is only markup: newlines before a call, all whitespace between calls and behind
    the last one, an end marker that is cut, and at the end of the text a marker behind which nothing stands.
    """

    def __init__(self, notation: Notation, tools: Tools, *, whole: bool = False) -> None:
        """`notation`: how the model writes calls.
        `tools`: those that may be called.
        `whole`: emit calls once they have ended, for replies that are not streamed.
        """
        self.tools, self._notation, self._whole = tools, notation, whole
        anywhere = [re.escape(each) for each in notation.anywhere]
        at_line = [rf"(?<=\n)[ \t]*{re.escape(each)}" for each in notation.at_line]
        self._marker = re.compile("|".join(anywhere) or r"(?!)")
        self._opener = re.compile("|".join([*anywhere, *at_line]))
        self._kept = ""  # what may be the beginning of an opener
        self._at_line = True  # nothing but whitespace stands on the line so far
        self._reading: Reading[str] | None = None  # of what may be a call
        self._run: re.Pattern[str] | None = None  # what it takes at once
        self._read: list[str] = []  # of it, what was not told
        self._from_opener = False  # whether that begins with the opener
        self._events: list[Event] = []  # since the last time
        self._call: list[Event] = []  # of a call, not told yet
        self._calls = 0  # how many there are, a broken one that was told included
        self._emitted = False  # whether something of the present call was
        self._blank = ""  # whitespace that is content if text follows, and markup if a call does
        self._spoken = False  # whether there is content since the last call

    def feed(self, text: str) -> list[Event]:
        """Take the next part of the text."""
        for begin in range(0, len(text), _BLOCK):
            pending = self._kept + text[begin : begin + _BLOCK]
            self._kept = ""
            while pending:
                pending = self._look(pending) if self._reading is None else self._go_on(self._reading, pending)
        return self._taken()

    def finish(self) -> list[Event]:
        """Take the end of the text."""
        if self._reading is not None:
            try:
                self._reading.send("")
                self._cut()
            except StopIteration as ended:
                self._say(ended.value)
            except Broken:
                self._cut()
            self._reading = None
        self._say(self._kept)
        self._kept = ""
        if self._blank and (self._spoken or not self._calls):
            self._events.append(Content(self._blank))
        self._blank = ""
        return self._taken()

    def begin(self, name: str) -> None:
        """Called by a notation that has read a tool's name. The first piece of arguments makes the call certain and
        final."""
        self._call = [CallBegan(self._calls, name)]

    def grow(self, text: str) -> None:
        """Called with the next piece of the arguments' JSON text."""
        self._call.append(ArgumentsGrew(self._calls, text))
        if not self._whole:
            self._tell()

    def end(self) -> None:
        """Called at the end of a whole call."""
        self._call.append(CallEnded(self._calls))
        self._tell()
        self._calls, self._emitted = self._calls + 1, False

    def _tell(self) -> None:
        self._events += self._call
        self._call, self._blank, self._spoken, self._emitted = [], "", False, True
        self._read, self._from_opener = [], False

    def _taken(self) -> list[Event]:
        """The events since the last call. Adjacent pieces are joined."""
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

    def _look(self, pending: str) -> str:
        """Search the next opener. Returns the unread text."""
        found = self._opener.search(("\n" if self._at_line else " ") + pending)
        if found is None:
            kept = beginning(pending, (*self._notation.anywhere, *self._notation.at_line))
            self._say(pending[: len(pending) - kept])
            self._kept = pending[len(pending) - kept :]
            return ""
        opener = found[0].lstrip(" \t")
        end = found.end() - 1
        self._say(pending[: end - len(opener)])
        self._reading = self._notation.read(opener, self)
        self._run = next(self._reading)
        self._read, self._from_opener = [opener], True
        return pending[end:]

    def _go_on(self, reading: Reading[str], pending: str) -> str:
        """Read on. Returns the unread text if this is no call, or has ended."""
        at = 0
        while at < len(pending):
            run = self._run.match(pending, at) if self._run else None
            c = run[0] if run else pending[at]
            at += len(c)
            self._read.append(c)
            try:
                self._run = reading.send(c)
            except StopIteration as ended:
                self._reading, self._at_line = None, True
                return str(ended.value) + pending[at:]
            except Broken:
                self._read = self._read or [c]  # what came before it was told
                self._reading = None
                return self._broken() + pending[at:]
        return ""

    def _broken(self) -> str:
        """From here on, the text is no call. Returns the possible beginning of another."""
        self._break_off()
        read = "".join(self._read)
        begin = int(self._from_opener)
        found = self._marker.search(read, begin)
        at = found.start() if found else len(read) - beginning(read[begin:], self._notation.anywhere)
        self._say(read[:at])
        return read[at:]

    def _cut(self) -> None:
        """The text has ended within the call."""
        self._break_off()
        read = "".join(self._read)
        if not self._from_opener or read.rstrip() not in self._notation.anywhere:
            self._say(read)

    def _break_off(self) -> None:
        if self._emitted:
            self._events.append(CallEnded(self._calls, whole=False))
            self._calls, self._emitted = self._calls + 1, False
        self._call = []

    def _say(self, text: str) -> None:
        """Emit content."""
        if not text:
            return
        _, newline, line = text.rpartition("\n")
        self._at_line = (self._at_line or bool(newline)) and not line.strip()
        kept = "" if not self._spoken and text.isspace() else text.rstrip("\n")
        if not kept:
            self._blank += text
            return
        self._events.append(Content(self._blank + kept))
        self._blank, self._spoken = text[len(kept) :], True
