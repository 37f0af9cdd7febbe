"""Reads one text as an answer: thoughts, content, calls of tools."""

from dataclasses import dataclass, field
from typing import Literal

from gateway.openai_api.answers.thoughts import Markers, ThoughtReader
from gateway.openai_api.tools.events import CallEnded, Content, Event
from gateway.openai_api.tools.notation import Tools
from gateway.openai_api.tools.reader import Reader
from gateway.openai_api.tools.styles import NOTATIONS, Style
from specpair.protocol.response_fields import FinishReason

AnswerReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Thought:
    """Thoughts before an answer. They are never empty."""

    text: str


AnswerEvent = Thought | Event


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How the texts of one request are read.

    `markers`   those of thoughts; None: nothing is a thought
    `begun`     whether the prompt has begun the thoughts
    `apart`     whether thoughts are told apart from the content; otherwise they are content, as they were written
    `style`     how calls are written; None: nothing is a call
    `tools`     the tools that may be called
    `whole`     a call is told when it has ended, for replies that are not streamed
    `one_call`  the answer ends behind its first call
    """

    markers: Markers | None = None
    begun: bool = False
    apart: bool = True
    style: Style | None = None
    tools: Tools = field(default_factory=dict)
    whole: bool = False
    one_call: bool = False

    @property
    def shown(self) -> tuple[str, ...]:
        """Texts whose control tokens the text must show."""
        thoughts = () if self.markers is None else self.markers.texts
        return thoughts if self.style is None else (*thoughts, *NOTATIONS[self.style].writing().tokens)


PLAIN = AnswerForm()  # all of a text is content


class Answer:
    """Takes a text in parts and tells what it holds.

    `ended`: whether it has ended behind its first call.
    """

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self._thoughts = None if form.markers is None else ThoughtReader(form.markers, begun=form.begun)
        self._reader = None if form.style is None else Reader(form.style, form.tools, whole=form.whole)
        self._written = ""  # as far as thoughts are not told apart: what was not told
        self._read = 0  # characters
        self._called = False  # whether a whole call came
        self.ended = False

    def feed(self, text: str) -> list[AnswerEvent]:
        """Take the next part of the text. Not to be called after the answer has ended."""
        if not text:
            return []
        self._read += len(text)
        if self._thoughts is None:
            return self._answered(text)
        return self._divided(*self._thoughts.feed(text), text)

    def finish(self) -> list[AnswerEvent]:
        """Take the end of the text."""
        if self.ended:
            return []
        events = [] if self._thoughts is None else self._divided(*self._thoughts.finish(), "")
        rest = [] if self._reader is None or self.ended else self._reader.finish()
        return events + self._called_in(rest)

    def reason(self, reason: FinishReason) -> AnswerReason:
        """Why the answer has ended. `reason`: why the text has."""
        return "tool_calls" if self.ended or (self._called and reason == "stop") else reason

    def thinks_at(self, character: int) -> bool | None:
        """Whether the thoughts or their markers have the character at this index; None: that is not known yet."""
        if self._thoughts is None:
            return False
        if self._thoughts.end is None:
            return True if self._thoughts.thinking else None
        return character < self._thoughts.end

    def _divided(self, thoughts: str, answer: str, text: str) -> list[AnswerEvent]:
        """What a part of the text holds, which was divided."""
        assert self._thoughts is not None
        if self._form.apart:
            return [*([Thought(thoughts)] if thoughts else []), *self._answered(answer)]
        self._written += text
        if self._thoughts.end is None and not self._thoughts.thinking:
            return []
        behind = 0 if self._thoughts.end is None else min(self._read - self._thoughts.end, len(self._written))
        at = len(self._written) - behind
        written, self._written = self._written, ""
        return [*([Content(written[:at])] if at else []), *self._answered(written[at:])]

    def _answered(self, text: str) -> list[AnswerEvent]:
        """What a part of the text behind the thoughts holds."""
        if not text:
            return []
        return [Content(text)] if self._reader is None else self._called_in(self._reader.feed(text))

    def _called_in(self, events: list[Event]) -> list[AnswerEvent]:
        """The events up to where the answer ends."""
        first = next((at for at, event in enumerate(events) if isinstance(event, CallEnded) and event.whole), None)
        if first is None:
            return [*events]
        self._called = True
        self.ended = self._form.one_call
        return [*events[: first + 1]] if self.ended else [*events]
