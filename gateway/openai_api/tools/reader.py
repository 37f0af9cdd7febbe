"""Reads calls out of a text as it grows, and tells what it holds: content, and calls once they are certain."""

import re
from dataclasses import dataclass
from itertools import groupby

from gateway.openai_api.stop_strings import beginning
from gateway.openai_api.tools.notation import Broken, Reading, Tools
from gateway.openai_api.tools.styles import NOTATIONS, Style


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


class Telling:
    """The events of one text. Notations tell it calls, the reader content.

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
        """A call. It is certain with the first piece of its arguments."""
        self._call = [CallBegan(self.calls, name)]

    def grow(self, text: str) -> None:
        """A piece of the arguments."""
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

    def __init__(self, style: Style, tools: Tools, *, whole: bool = False) -> None:
        """`style`: how the model writes calls.

        `tools`: the JSON schemas of parameters by the names of tools.
        `whole`: a call is told when it has ended, for replies that are not streamed.
        """
        self._notation = NOTATIONS[style]
        anywhere = [re.escape(each) for each in self._notation.anywhere]
        at_line = [rf"(?<=\n)[ \t]*{re.escape(each)}" for each in self._notation.at_line]
        self._marker = re.compile("|".join(anywhere) or r"(?!)")
        self._opener = re.compile("|".join([*anywhere, *at_line]))
        self._telling = Telling(tools, whole=whole)
        self._kept = ""  # what may be the beginning of an opener
        self._at_line = True  # nothing but whitespace stands on the line so far
        self._reading: Reading[str] | None = None  # of what may be a call
        self._run: re.Pattern[str] | None = None  # what it takes at once
        self._read: list[str] = []  # of it, what was not told
        self._from_opener = False  # whether that begins with the opener

    def feed(self, text: str) -> list[Event]:
        """Take the next part of the text."""
        for begin in range(0, len(text), _BLOCK):
            pending = self._kept + text[begin : begin + _BLOCK]
            self._kept = ""
            while pending:
                pending = self._look(pending) if self._reading is None else self._go_on(self._reading, pending)
        return self._telling.take()

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
        self._telling.finish()
        return self._telling.take()

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
        self._reading = self._notation.read(opener, self._telling)
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
                self._forget([])
            except StopIteration as ended:
                self._forget([])
                self._reading, self._at_line = None, True
                return str(ended.value) + pending[at:]
            except Broken:
                self._forget([c])
                self._reading = None
                return self._broken() + pending[at:]
        return ""

    def _forget(self, last: list[str]) -> None:
        """Forget what was told of what was read. `last`: what was read last, and not told."""
        if self._telling.promised:
            self._telling.promised = False
            self._read, self._from_opener = last, False

    def _broken(self) -> str:
        """The call is none from here on. Returns what may be the beginning of another one."""
        self._telling.broken()
        read = "".join(self._read)
        begin = int(self._from_opener)
        found = self._marker.search(read, begin)
        at = found.start() if found else len(read) - beginning(read[begin:], self._notation.anywhere)
        self._say(read[:at])
        return read[at:]

    def _cut(self) -> None:
        """The text has ended within the call."""
        self._telling.broken()
        read = "".join(self._read)
        if not self._from_opener or read.rstrip() not in self._notation.anywhere:
            self._say(read)

    def _say(self, text: str) -> None:
        if text:
            self._telling.content(text)
            _, newline, line = text.rpartition("\n")
            self._at_line = (self._at_line or bool(newline)) and not line.strip()
