"""Collects what a text holds: content without the whitespace around calls, and calls once they are certain."""

from itertools import groupby

from gateway.openai_api.tools.events import ArgumentsGrew, CallBegan, CallEnded, Content, Event
from gateway.openai_api.tools.notation import Tools


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
