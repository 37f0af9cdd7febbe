"""Rolls back recurrent and hybrid models, of whose states an engine holds only the latest.

Before tokens that may be rejected, a copy of the state is taken: a *point*. A slot rolls back to a point, and the
tokens from there to where it goes on are read again, at the head of its next pass. So a pass after a rejection is
wider, and whoever measures passes sees what rejected tokens cost. Reading them in a pass of their own, behind which a
point is taken, costs a pass, but they are then never read again: it is done as soon as what is read again at the heads
of passes has cost as much as a pass does beside its tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, Protocol

from specpair.engines.backend import Entry
from specpair.engines.probe_texts import timing_ids

JOINED = (
    8  # tokens read again at the head of a pass; more are read in a pass of their own, behind which a point is taken
)
POINTS = 3  # of a slot, at most: the newest, and two that are far from each other, for texts that begin alike
_TIMED = 3  # how often each width is timed
_APART = 64  # tokens between points where the engine takes back what is rejected


class SlotStates(Protocol):
    """An engine's operations on the states of its slots, and on their keys and values.

    Each method raises an error of the engine if it fails.
    """

    def save(self, slot: int, spare: Any) -> Any:
        """A copy of a slot's state. `spare`: an unneeded copy whose memory may be reused; None: none."""

    def restore(self, slot: int, state: Any) -> None:
        """Restore a copy. A call of `cut` follows."""

    def cut(self, slot: int, length: int, back: int) -> None:
        """Forget all but the first `length` tokens. `back`: how many later tokens the state includes, at most the
        `kept_states` of the engine."""

    def empty(self, slot: int) -> None:
        """Forget all tokens."""

    def copy(self, source: int, destination: int, length: int) -> None:
        """Copy the keys and values of the first `length` tokens, and the state, to a slot that is empty."""


@dataclass(slots=True)
class _Point:
    """A copy of the state after the first `position` tokens of a text."""

    position: int
    state: Any  # in the engine's format
    shared: bool = False  # whether several slots may have it


@dataclass(slots=True)
class _Text:
    """The tokens of a slot. The state includes the first `read`."""

    tokens: list[int] = field(default_factory=list)
    read: int = 0
    points: list[_Point] = field(default_factory=list)  # in order of position
    takes_back: int = 0  # of the tokens last read, how many the engine takes back by itself
    joined: int = 0  # tokens read again at the heads of passes since the last point

    def base(self, length: int) -> int:
        """The longest available state within the first `length` tokens, in tokens."""
        if self.read <= length or self.read - length <= self.takes_back:
            return min(self.read, length)
        return max((point.position for point in self.points if point.position <= length), default=0)


class RecurrentStates:
    """The texts and points of all slots of an engine."""

    def __init__(
        self,
        states: SlotStates,
        slots: int,
        read: Callable[[Entry], object],
        widest: int,
        size: int,
        kept_states: int = 0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`read`: runs a pass over one entry, of at most `widest` tokens.
        `size`: ids of the vocabulary.
        `kept_states`: how many tokens of the last pass the engine takes back by itself.
        `clock`: returns seconds.
        """
        self._states, self._read, self._widest, self._kept_states = states, read, widest, kept_states
        self._texts = [_Text() for _ in range(slots)]
        self._tokens_of_a_pass = self._measured(size, clock)
        self._spare: list[Any] = []  # states that are no longer needed: new memory takes seven times as long

    def prepared(self, entry: Entry) -> Entry:
        """Roll a slot back to where `entry` starts. Returns the entry, with the tokens before it that are read again.

        The slot counts as extended by the entry from now on: forget it if the pass fails.
        """
        slot, start, tokens, logits_from, _ = entry
        text = self._texts[slot]
        self._roll_back(slot, start)
        del text.tokens[start:]
        apart = JOINED if len(tokens) == 1 else 1  # several tokens: some may be rejected
        if 1 < len(tokens) <= self._kept_states + 1:
            apart = _APART
        text.joined += start - text.read
        if start - text.read > JOINED or text.joined > self._tokens_of_a_pass:
            apart = 1
            for at in range(text.read, start, self._widest):
                again = text.tokens[at : at + self._widest]
                self._read(Entry(slot, at, again, len(again)))
            text.read, text.takes_back = start, 0
        newest = text.points[-1].position if text.points else start - apart
        if 0 < start == text.read >= newest + apart:
            self._take_point(slot)
        again, first = text.tokens[text.read :], text.read
        text.tokens += tokens
        text.read = len(text.tokens)
        text.takes_back = min(self._kept_states, text.read - first - 1)
        return Entry(slot, first, [*again, *tokens], logits_from + len(again))

    def reread(self, slot: int, length: int) -> int:
        """How many of the first `length` tokens of a slot a pass after them must read again."""
        return length - self._texts[slot].base(length)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Make slot `destination`, which is empty, hold the first `length` tokens of `source`."""
        text, base = self._texts[source], self._texts[source].base(length)
        points = [point for point in text.points if point.position <= length]
        for point in points:
            point.shared = True
        self._texts[destination] = _Text(text.tokens[:length], base, points)
        if base:
            self._states.copy(source, destination, base)
            if base < text.read <= base + text.takes_back:
                self._states.cut(destination, base, text.read - base)
            elif base < text.read:
                self._restore(destination, base)

    def forget(self, slot: int) -> None:
        """Forget the text of an emptied slot."""
        self._drop(self._texts[slot].points)
        self._texts[slot] = _Text()

    def _roll_back(self, slot: int, length: int) -> None:
        text = self._texts[slot]
        if text.read <= length:
            return
        base = text.base(length)
        if text.read - base <= text.takes_back:
            self._states.cut(slot, base, text.read - base)
        elif base:
            self._restore(slot, base)
        else:
            self._states.empty(slot)
        text.read, text.takes_back = base, 0
        self._drop([point for point in text.points if point.position > length])
        text.points = [point for point in text.points if point.position <= length]

    def _restore(self, slot: int, position: int) -> None:
        """Restore the state of a point, and forget later keys and values."""
        state = next(point.state for point in self._texts[slot].points if point.position == position)
        self._states.restore(slot, state)
        self._states.cut(slot, position, 0)

    def _take_point(self, slot: int) -> None:
        """Copy the state of a slot, which the next pass is about to change."""
        text = self._texts[slot]
        state = self._states.save(slot, self._spare.pop() if self._spare else None)
        text.points.append(_Point(text.read, state))
        text.joined = 0
        if len(text.points) > POINTS:  # one of the older ones goes, where the others are nearest to each other
            edges = [0, *(point.position for point in text.points)]
            self._drop([text.points.pop(min(range(POINTS), key=lambda at: edges[at + 2] - edges[at]))])

    def _measured(self, size: int, clock: Callable[[], float]) -> float:
        """The fixed time of a pass, in tokens that take as long, measured in the first slot."""
        wide = min(JOINED + 1, self._widest)
        least, ids = {1: inf, wide: inf}, timing_ids(size, wide)
        for width in [*least] * _TIMED:
            began = clock()
            self._read(Entry(0, 0, ids[:width], width))
            least[width] = min(least[width], clock() - began)
            self._states.empty(0)
        token = (least[wide] - least[1]) / (wide - 1)
        return max(0.0, least[1] / token - 1) if token > 0 else inf

    def _drop(self, points: Sequence[_Point]) -> None:
        """Keep the memory of points that no slot uses any more."""
        self._spare += [point.state for point in points if not point.shared]
