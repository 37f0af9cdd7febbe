"""Reads calls of tools out of a text as it grows, and tells what it holds: content, and calls once they are certain.

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
    plain: bool = False  # whether `{"name": NAME, "arguments": ARGUMENTS}` alone is read as a call, too


class Notation(Protocol):
    """How a style writes calls, and how these are read."""

    anywhere: tuple[str, ...]  # texts that may begin calls wherever they stand
    at_line: tuple[str, ...]  # texts that may begin calls at the beginning of a line, of the text, and behind a call

    def read(self, opener: str, calls: "CallReader") -> Reading[str]:
        """Read calls behind `opener`, one of the above. Returns what was read and does not belong to them.

        Raises Broken where the text ceases to be calls.
        """

    def writing(self) -> Writing:
        """How calls are written, for grammars."""


_BLOCK = 4096  # characters that are looked at together


class CallReader:
    """Takes a text in parts and tells what it holds. The result does not depend on how the text is divided.

    Text that may be the beginning of a call is held back until it is known whether it is one: it is written like a
    call, of a tool that was given, and its arguments begin. From there on, the arguments are told as they grow.

    What is no call is content, as it was written. What was told is not taken back: where a call breaks off, or the end
    of the text cuts it, `CallEnded` says that it is not whole, and what was not told of it is content. With `whole`,
    nothing of a call is told before it has ended, so that a broken one is content from its beginning.

    Some of the text is only markup, and nobody gets it: newlines before a call, all whitespace between calls and behind
    the last one, an end marker that is cut, and at the end of the text a marker behind which nothing stands.
    """

    def __init__(self, notation: Notation, tools: Tools, *, whole: bool = False) -> None:
        """`notation`: how the model writes calls.
        `tools`: those that may be called.
        `whole`: a call is told when it has ended, for replies that are not streamed.
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
        self._told = False  # whether something of the present call was
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
        """A notation has read a tool's name. The call is certain, and cannot be taken back, with the first piece of its
        arguments."""
        self._call = [CallBegan(self._calls, name)]

    def grow(self, text: str) -> None:
        """A notation has read a piece of the JSON text of the arguments."""
        self._call.append(ArgumentsGrew(self._calls, text))
        if not self._whole:
            self._tell()

    def end(self) -> None:
        """A notation has read the whole call."""
        self._call.append(CallEnded(self._calls))
        self._tell()
        self._calls, self._told = self._calls + 1, False

    def _tell(self) -> None:
        self._events += self._call
        self._call, self._blank, self._spoken, self._told = [], "", False, True
        self._read, self._from_opener = [], False

    def _taken(self) -> list[Event]:
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

    def _look(self, pending: str) -> str:
        """Look for the next opener. Returns what is still to be read."""
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
        """Read on. Returns what is still to be read when this is no call, or no longer one."""
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
        """The call is none from here on. Returns what may be the beginning of another one."""
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
        if self._told:
            self._events.append(CallEnded(self._calls, whole=False))
            self._calls, self._told = self._calls + 1, False
        self._call = []

    def _say(self, text: str) -> None:
        """Tell text beside calls."""
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
