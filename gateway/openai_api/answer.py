"""Reads one text as an answer, as it grows: thoughts between markers, content, calls of tools."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from gateway.openai_api.channels import Channels
from gateway.openai_api.detokenizer import beginning
from gateway.openai_api.tools.free_text import FreeTexts
from gateway.openai_api.tools.reader import AnswerEvent, CallEnded, CallReader, Content, Thought, Tools
from gateway.openai_api.tools.styles import NOTATIONS, Style, style_of
from specpair.protocol.response_fields import FinishReason

if TYPE_CHECKING:
    from models.commands.showing import ReplyStyle


@dataclass(frozen=True, slots=True)
class Markers:
    """Markers around thoughts. `behind`: what stands between the end of thoughts and an answer."""

    begin: str
    end: str
    behind: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """All markers. They are often control tokens, or several, whose names the text must show."""
        return (self.begin, self.end, self.behind)


THINK = Markers("<think>", "</think>")  # of most families
_HARMONY = Markers("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant")  # read by Channels
_FAMILIES = (
    Markers("[THINK]", "[/THINK]"),  # Magistral, Ministral
    Markers("<|channel>thought", "<channel|>"),  # Gemma 4
    Markers("<seed:think>", "</seed:think>"),  # Seed-OSS
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B, Command A
    Markers("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Markers("<thought>", "</thought>"),  # EXAONE Deep
    Markers("◁think▷", "◁/think▷"),  # Kimi
    THINK,
)


@lru_cache(maxsize=8)
def markers_of(template: str | None) -> Markers | None:
    """The markers that a chat template shows, in the prompt, in earlier answers, or in both; None: there are none."""
    shown = template or ""
    if "<|channel|>" in shown and "analysis" in shown:  # gpt-oss: the template puts them together
        return _HARMONY
    return next((each for each in _FAMILIES if each.begin in shown or each.end in shown), None)


def reply_style(template: str) -> "ReplyStyle":
    """How a chat template makes the model write tool calls and thoughts, for the commands on models."""
    from models.commands.showing import ReplyStyle  # here: services do without it

    style, markers = style_of(template), markers_of(template)
    return ReplyStyle(style.value, style is not Style.JSON, None if markers is None else (markers.begin, markers.end))


def markers_to_read(template: str | None) -> Markers:
    """The markers for reading a model's texts: fine-tunes may think although their chat template shows no markers."""
    return markers_of(template) or THINK


class _Section(Enum):
    """The section being read."""

    START = auto()
    THOUGHTS = auto()
    BEHIND = auto()  # behind the end marker, where only whitespace has come
    ANSWER = auto()


class ThoughtReader:
    """Takes a text in parts and divides it into thoughts and what follows them.

    Thoughts stand at the beginning of the text, or the prompt has begun them. Whitespace on either side of a marker
    belongs to it. Thoughts without an end marker are the whole text.

    `end`: how many characters the thoughts and their markers have; None: that is not known yet.
    """

    def __init__(self, markers: Markers, *, begun: bool) -> None:
        """`begun`: whether the prompt ends with the beginning of thoughts."""
        self._markers, self._begun = markers, begun
        self._section = _Section.START
        self._pending = ""  # what was read and not told
        self._emitted = False  # whether thoughts were
        self._read = 0  # characters
        self.end: int | None = None

    @property
    def thinking(self) -> bool:
        """Whether the last part were thoughts."""
        return self._section is _Section.THOUGHTS

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next part of the text. Returns what it adds to the thoughts, and to what follows them."""
        self._read += len(text)
        self._pending += text
        if self._section is _Section.START:
            self._begin()
        thoughts = self._think() if self._section is _Section.THOUGHTS else ""
        if self._section is _Section.BEHIND:
            self._pending = self._pending.lstrip()
            self._section = _Section.ANSWER if self._pending else _Section.BEHIND
        if self._section is not _Section.ANSWER:
            return thoughts, ""
        answer, self._pending = self._pending, ""
        return thoughts, answer

    def finish(self) -> tuple[str, str]:
        """Take the end of the text."""
        pending, self._pending = self._pending, ""
        if self._section is _Section.THOUGHTS or (self._section is _Section.START and self._begun):
            self.end = self._read
            return (pending.rstrip() if self._emitted else pending.strip()), ""
        if self._section is _Section.BEHIND:
            return "", ""
        self.end = self.end or 0
        return "", pending

    def _begin(self) -> None:
        """Check whether thoughts begin."""
        stripped, begin = self._pending.lstrip(), self._markers.begin
        if stripped.startswith(begin):
            self._section, self._pending = _Section.THOUGHTS, stripped[len(begin) :]
        elif not begin.startswith(stripped):
            self._section = _Section.THOUGHTS if self._begun else _Section.ANSWER
            self.end = None if self._begun else 0

    def _think(self) -> str:
        """The thoughts that are certain, up to the end marker."""
        thoughts, end, behind = self._pending.partition(self._markers.end)
        if end:
            self._section, self._pending, self.end = _Section.BEHIND, behind, self._read - len(behind)
            thoughts = thoughts.rstrip()
        else:
            thoughts = thoughts[: len(thoughts) - beginning(thoughts, [self._markers.end])].rstrip()
            self._pending = self._pending[len(thoughts) :]
        if not self._emitted:
            thoughts = thoughts.lstrip()
        self._emitted = self._emitted or bool(thoughts)
        return thoughts


AnswerReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How the texts of one request are read."""

    markers: Markers | None = None  # those of thoughts; None: nothing is a thought
    begun: bool = False  # whether the prompt has begun the thoughts
    apart: bool = True  # whether thoughts are told apart from the content; else they are content, as they were written
    style: Style | None = None  # how calls are written; None: nothing is a call
    tools: Tools = field(default_factory=dict)  # those that may be called
    whole: bool = False  # a call is told when it has ended, for replies that are not streamed
    one_call: bool = False  # the answer ends behind its first call

    @property
    def channels(self) -> Channels | None:
        """A reader of a text in channels; None: it has none."""
        if self.markers != _HARMONY and self.style is not Style.HARMONY:
            return None
        return Channels(self.tools if self.style is Style.HARMONY else {}, apart=self.apart, whole=self.whole)

    @property
    def shown(self) -> tuple[str, ...]:
        """Texts whose control tokens the text must show."""
        thoughts = () if self.markers is None else self.markers.texts
        return thoughts if self.style is None else (*thoughts, *NOTATIONS[self.style].writing().tokens)


PLAIN = AnswerForm()  # all of a text is content


class AnswerReader:
    """Reads a text in parts, and yields its events.

    `ended`: whether the answer ended after its first call.
    """

    def __init__(self, form: AnswerForm) -> None:
        self._form, self._channels = form, form.channels
        self._thoughts = None if form.markers is None else ThoughtReader(form.markers, begun=form.begun)
        self._reader = None if form.style is None else CallReader(NOTATIONS[form.style], form.tools, whole=form.whole)
        self._written = ""  # as far as thoughts are not told apart: what was not told
        self._read = 0  # characters
        self._called = False  # whether a whole call came
        self._texts = FreeTexts(form.tools)
        self.ended = False

    def feed(self, text: str) -> list[AnswerEvent]:
        """Take the next part of the text. Not to be called after the answer has ended."""
        if not text:
            return []
        self._read += len(text)
        if self._channels is not None:
            return self._called_in(self._channels.feed(text))
        if self._thoughts is None:
            return self._answered(text)
        return self._divided(*self._thoughts.feed(text), text)

    def finish(self) -> list[AnswerEvent]:
        """Take the end of the text."""
        if self.ended:
            return []
        if self._channels is not None:
            return self._called_in(self._channels.finish())
        events = [] if self._thoughts is None else self._divided(*self._thoughts.finish(), "")
        rest = [] if self._reader is None or self.ended else self._reader.finish()
        return events + self._called_in(rest)

    def reason(self, reason: FinishReason) -> AnswerReason:
        """Why the answer has ended. `reason`: why the text has."""
        return "tool_calls" if self.ended or (self._called and reason == "stop") else reason

    def thinks_at(self, character: int) -> bool | None:
        """Whether the thoughts or their markers have the character at this index; None: that is not known yet."""
        if self._channels is not None:
            return self._channels.thinks_at(character)
        if self._thoughts is None:
            return False
        if self._thoughts.end is None:
            return True if self._thoughts.thinking else None
        return character < self._thoughts.end

    def _divided(self, thoughts: str, answer: str, text: str) -> list[AnswerEvent]:
        """The events of thoughts and of the text after them."""
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
        """The events of a text after the thoughts."""
        if not text:
            return []
        return [Content(text)] if self._reader is None else self._called_in(self._reader.feed(text))

    def _called_in(self, events: Sequence[AnswerEvent]) -> list[AnswerEvent]:
        """The events up to where the answer ends, with free texts in place of their arguments."""
        events = [*self._texts.told(events)]
        first = next((at for at, event in enumerate(events) if isinstance(event, CallEnded) and event.whole), None)
        if first is None:
            return [*events]
        self._called = True
        self.ended = self._form.one_call
        return [*events[: first + 1]] if self.ended else [*events]
