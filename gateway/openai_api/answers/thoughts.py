"""Reads the thoughts that a text begins with, as it grows, and the markers in which models put them."""

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from gateway.openai_api.stop_strings import beginning


@dataclass(frozen=True, slots=True)
class Markers:
    """What stands around thoughts. `heads`: what may stand before the answer, with or without thoughts before it."""

    begin: str
    end: str
    heads: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them. Models have them, or their parts, as control tokens, which the text must show."""
        return (self.begin, self.end, *self.heads)


THINK = Markers("<think>", "</think>")  # of most families
_HARMONY = Markers(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    ("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
)
_FAMILIES = (
    THINK,
    Markers("[THINK]", "[/THINK]"),  # Magistral, Ministral
    Markers("<|channel>thought", "<channel|>"),  # Gemma 4
    Markers("<seed:think>", "</seed:think>"),  # Seed-OSS
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B, Command A
    Markers("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Markers("<thought>", "</thought>"),  # EXAONE Deep
    Markers("◁think▷", "◁/think▷"),  # Kimi
)


@lru_cache(maxsize=8)
def markers_of(template: str | None) -> Markers | None:
    """The markers that a chat template shows, in the prompt, in earlier answers, or in both; None: there are none."""
    shown = template or ""
    if "<|channel|>" in shown and "analysis" in shown:  # gpt-oss: the template puts them together
        return _HARMONY
    return next((each for each in _FAMILIES if each.begin in shown or each.end in shown), None)


def markers_to_read(template: str | None) -> Markers:
    """The markers by which texts of a model with this chat template are read: fine-tunes think without telling it."""
    return markers_of(template) or THINK


class _Place(Enum):
    """Where in a text the reader is."""

    START = auto()
    THOUGHTS = auto()
    BEHIND = auto()  # behind the end marker, where only whitespace and a head have come
    ANSWER = auto()


class ThoughtReader:
    """Takes a text in parts and divides it into thoughts and what follows them.

    Thoughts stand at the beginning of the text, or the prompt has begun them. Whitespace on either side of a marker
    belongs to it. Thoughts that nothing ends are all that there is.

    `end`: how many characters the thoughts and their markers have; None: that is not known yet.
    """

    def __init__(self, markers: Markers, *, begun: bool) -> None:
        """`begun`: whether the prompt ends with the beginning of thoughts."""
        self._markers, self._begun = markers, begun
        self._place = _Place.START
        self._pending = ""  # what was read and not told
        self._told = False  # whether thoughts were
        self._read = 0  # characters
        self.end: int | None = None

    @property
    def thinking(self) -> bool:
        """Whether what was read last are thoughts."""
        return self._place is _Place.THOUGHTS

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next part of the text. Returns what it adds to the thoughts, and to what follows them."""
        self._read += len(text)
        self._pending += text
        if self._place is _Place.START:
            self._begin()
        thoughts = self._think() if self._place is _Place.THOUGHTS else ""
        if self._place is _Place.BEHIND:
            self._go_behind()
        if self._place is not _Place.ANSWER:
            return thoughts, ""
        answer, self._pending = self._pending, ""
        return thoughts, answer

    def finish(self) -> tuple[str, str]:
        """Take the end of the text."""
        pending, self._pending = self._pending, ""
        if self._place is _Place.THOUGHTS or (self._place is _Place.START and self._begun):
            self.end = self._read
            return (pending.rstrip() if self._told else pending.strip()), ""
        if self._place is _Place.BEHIND:
            return "", ""
        self.end = self.end or 0
        return "", pending

    def _begin(self) -> None:
        """Look whether thoughts begin, or the head of an answer. It may be too early to tell."""
        stripped = self._pending.lstrip()
        openers = (self._markers.begin, *(() if self._begun else self._markers.heads))
        found = next((each for each in openers if stripped.startswith(each)), None)
        if found is None and any(each.startswith(stripped) for each in openers):
            return
        if found is not None:
            self._pending = stripped[len(found) :]
        if found == self._markers.begin or self._begun:
            self._place = _Place.THOUGHTS
            return
        self._place = _Place.ANSWER
        self.end = 0 if found is None else self._read - len(self._pending)

    def _think(self) -> str:
        """The thoughts that are certain, up to the end marker."""
        thoughts, end, behind = self._pending.partition(self._markers.end)
        if end:
            self._place, self._pending, self.end = _Place.BEHIND, behind, self._read - len(behind)
            thoughts = thoughts.rstrip()
        else:
            thoughts = thoughts[: len(thoughts) - beginning(thoughts, [self._markers.end])].rstrip()
            self._pending = self._pending[len(thoughts) :]
        if not self._told:
            thoughts = thoughts.lstrip()
        self._told = self._told or bool(thoughts)
        return thoughts

    def _go_behind(self) -> None:
        """Pass over whitespace and a head behind the end marker. It may be too early to tell."""
        stripped, heads = self._pending.lstrip(), self._markers.heads
        found = next((each for each in heads if stripped.startswith(each)), None)
        if found is None and (not stripped or any(each.startswith(stripped) for each in heads)):
            return
        self._place, self._pending = _Place.ANSWER, stripped[len(found or "") :]
        if found:
            self.end = self._read - len(self._pending)
