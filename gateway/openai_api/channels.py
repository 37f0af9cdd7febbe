"""Reads the messages of gpt-oss (harmony): each has a header, with a channel and perhaps a recipient, and a text."""

import re
from typing import Literal

from gateway.openai_api.detokenizer import beginning
from gateway.openai_api.tools.reader import AnswerEvent, CallReader, Content, Event, Thought, Tools
from gateway.openai_api.tools.styles import NOTATIONS, Style

_MESSAGE, _CALL = "<|message|>", "<|call|>"
_LONGEST = 512  # characters of a header
_HEADS = ("<|start|>", "<|channel|>", "<|constrain|>", _MESSAGE, "to=", "assistant<|", "assistant to=")  # begin one
_TO, _CHANNEL = re.compile(r"\bto=([^\s<]+)"), re.compile(r"<\|channel\|>\s*(\w+)")
_CUT_HEAD = re.compile(
    r"\s*(?:<\|start\|>)?(?:assistant)?(?:\s*to=[^\s<]*|<\|channel\|>\w*)*\s*(?:<\|constrain\|>)?(?:json)?"
)
_MARKER, _LAST = re.compile(r"<\|\w*(?:\|>?)?"), re.compile(r"<\|\w*(?:\|>?)?\Z")
# What ends a text. A model may also write about `<|call|>` and `<|channel|>`: they end it only where a header follows.
_NEXT = [
    f"<|channel|>{name}{then}" for name in ("analysis", "commentary", "final") for then in (_MESSAGE, "<|c", " to")
]
_ENDS = ("<|end|>", "<|return|>", f"{_CALL}<|start|>", "<|start|>assistant", *_NEXT)
_END = re.compile("|".join(map(re.escape, _ENDS)))
_END_OF_JSON = re.compile(r'\\.|"|<\|(?:end|return|call|start|channel)\|>', re.DOTALL)  # outside of its strings
_BEHIND = re.compile(r"<\|(?:end|return|call)\|>")  # markers that belong to the text before them


class Channels:
    """Takes a text in parts, and yields its events: `analysis` has thoughts, a message to a tool is a call, and other
    messages are content. No marker is in any of them. An empty line parts two messages of one kind.

    A text without a header is content.
    """

    def __init__(self, tools: Tools, *, apart: bool, whole: bool) -> None:
        """`tools`: those that may be called.
        `apart`: whether thoughts are told apart from the content; else they are content, with their markers.
        `whole`: as in `CallReader`.
        """
        self._tools, self._apart = tools, apart
        self._calls = CallReader(NOTATIONS[Style.HARMONY], tools, whole=whole)
        self._pending = ""  # what was read and not told
        self._read = 0  # characters
        self._begins: list[tuple[int, bool | None]] = [(0, None)]  # of messages, and whether they have thoughts
        self._kind: Literal["thoughts", "content", "call"] | None = None  # None: a header is read
        self._head = ""  # of a call, as its reader takes it
        self._quoted = False  # whether a string of a call's JSON is read
        self._spoken = set[type]()  # kinds of events that were told
        self._goes_on = False  # whether the next text follows the last one of its kind without a gap

    def feed(self, text: str) -> list[AnswerEvent]:
        """Take the next part of the text."""
        self._read += len(text)
        self._pending += text
        events: list[AnswerEvent] = []
        while self._header(events) if self._kind is None else self._text(events):
            pass
        return events

    def finish(self) -> list[AnswerEvent]:
        """Take the end of the text."""
        if self._kind is None:  # a header that is cut
            self._pending = _MARKER.sub("", _CUT_HEAD.sub("", self._pending, count=1)).lstrip()
            self._begin("content")
        rest, self._pending = _LAST.sub("", self._pending), ""
        return [*self._told(rest), *self._ended()]

    def thinks_at(self, character: int) -> bool | None:
        """Whether thoughts or their markers have the character at this index; None: that is not known yet."""
        return next(thinks for begin, thinks in reversed(self._begins) if begin <= character)

    def _header(self, events: list[AnswerEvent]) -> bool:
        """Read a header. Returns false while it is not whole."""
        head, message, behind = self._pending.partition(_MESSAGE)
        begun = self._pending.lstrip()
        if not begun.startswith(_HEADS) or (not message and len(begun) > _LONGEST):
            if any(each.startswith(begun) for each in _HEADS):
                return False
            self._begin("content")
        elif message:
            written, self._pending = head + message, behind
            head = head.rpartition("<|start|>")[2]  # what stands before is no header
            name = found[1].removeprefix("functions.") if (found := _TO.search(head)) else ""
            thinks = _CHANNEL.findall(head)[-1:] == ["analysis"]
            self._begin("call" if name in self._tools else "thoughts" if thinks else "content")
            if self._kind == "call":
                writing = NOTATIONS[Style.HARMONY].writing()
                self._head = f"{writing.begin}{name}{writing.middle}"
                self._calls.feed(self._head)
            elif thinks and not self._apart:
                events += self._told(written)
        return bool(message) or self._kind is not None

    def _begin(self, kind: Literal["thoughts", "content", "call"]) -> None:
        self._kind, self._quoted = kind, False
        self._begins[-1] = (self._begins[-1][0], kind == "thoughts")

    def _text(self, events: list[AnswerEvent]) -> bool:
        """Read on in the text of a message. Returns whether it has ended."""
        at, ended = self._end_of_json() if self._kind == "call" else self._end()
        told, self._pending = self._pending[:at], self._pending[at:]
        if ended and (marker := _BEHIND.match(self._pending)) is not None:
            self._pending = self._pending[marker.end() :]
            told += "" if self._apart or self._kind != "thoughts" else marker[0]
        events += self._told(told)
        if ended:
            events += self._ended()
            self._begins.append((self._read - len(self._pending), None))
        return ended

    def _end(self) -> tuple[int, bool]:
        """How many characters belong to the text for certain, and whether it ends behind them."""
        if (found := _END.search(self._pending)) is not None:
            return found.start(), True
        return len(self._pending) - beginning(self._pending, _ENDS), False

    def _end_of_json(self) -> tuple[int, bool]:
        """The same in the text of a call."""
        seen = 0
        for found in _END_OF_JSON.finditer(self._pending):
            if found[0] == '"':
                self._quoted = not self._quoted
            elif not self._quoted and found[0][0] == "<":
                return found.start(), True
            seen = found.end()
        open_escape = self._pending.endswith("\\", seen)
        return len(self._pending) - (1 if open_escape else beginning(self._pending, _ENDS)), False

    def _told(self, text: str) -> list[AnswerEvent]:
        """The events of more text in the message."""
        if not text:
            return []
        if self._kind == "call":
            return self._called(self._calls.feed(text))
        kind = Thought if self._kind == "thoughts" and self._apart else Content
        parted, self._spoken = "\n\n" if kind in self._spoken and not self._goes_on else "", {*self._spoken, kind}
        self._goes_on = True
        return [kind(parted + text)]

    def _ended(self) -> list[AnswerEvent]:
        """The events of the message's end."""
        events = self._called(self._calls.finish()) if self._kind == "call" else []
        self._kind, self._goes_on = None, not self._apart and self._kind == "thoughts"  # its marker parts it
        return events

    def _called(self, events: list[Event]) -> list[AnswerEvent]:
        """The events of a call. What breaks off is content, without the header."""
        told = (Content(each.text.replace(self._head, "")) if isinstance(each, Content) else each for each in events)
        kept: list[AnswerEvent] = [each for each in told if not isinstance(each, Content) or each.text]
        self._spoken |= {type(each) for each in kept}
        return kept
