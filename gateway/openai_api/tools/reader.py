"""Reads calls out of a text as it grows, and tells what it holds: content, and calls once they are certain."""

import re

from gateway.openai_api.detokenizer import beginning
from gateway.openai_api.tools.notation import Broken, Calls, Event, Reading, Tools
from gateway.openai_api.tools.styles import NOTATIONS, Style

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
        self._calls = Calls(tools, whole=whole)
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
        return self._calls.take()

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
        self._calls.finish()
        return self._calls.take()

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
        self._reading = self._notation.read(opener, self._calls)
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
        if self._calls.promised:
            self._calls.promised = False
            self._read, self._from_opener = last, False

    def _broken(self) -> str:
        """The call is none from here on. Returns what may be the beginning of another one."""
        self._calls.broken()
        read = "".join(self._read)
        begin = int(self._from_opener)
        found = self._marker.search(read, begin)
        at = found.start() if found else len(read) - beginning(read[begin:], self._notation.anywhere)
        self._say(read[:at])
        return read[at:]

    def _cut(self) -> None:
        """The text has ended within the call."""
        self._calls.broken()
        read = "".join(self._read)
        if not self._from_opener or read.rstrip() not in self._notation.anywhere:
            self._say(read)

    def _say(self, text: str) -> None:
        if text:
            self._calls.content(text)
            _, newline, line = text.rpartition("\n")
            self._at_line = (self._at_line or bool(newline)) and not line.strip()
