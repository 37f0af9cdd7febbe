"""What drafters with the real controller did next, by situation, and a drafter's situation.

Two things happen to a drafter: it sends a draft, and it learns of committed tokens, which confirm the draft tokens that
it has sent, contradict them, or go beyond them. A situation is the last of these, how many drafts are open (in flight,
and neither contradicted nor decided), how many tokens they reach beyond the known text, whether the verifier goes on by
itself, and the time since the last happening of the other kind, which tells where the verifier stands.

The table keeps for each situation what came next: a draft after some time, or something else after some time. The
second is censoring in the sense of survival analysis: what the drafter would have done later stays unknown. It is drawn
anew from the rows that lasted longer (Efron's redistribution to the right, which gives the estimate of Kaplan and
Meier).

A situation with too few rows is taken together with others: first without the tokens beyond, then without the time. The
latest rows of a situation replace the oldest ones, so a table that is still written follows the load.
"""

import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from math import frexp
from typing import NamedTuple

from specpair.speculation.policy.rejection_policy import RejectionPolicy

_LEAST = 8  # rows from which on a situation stands by itself
_KEPT = 200  # rows of a situation
_SHORT = 5e-4  # seconds: shorter times since the last draft are one
_THIRDS = (0.63, 0.794)  # longer times have three classes for each doubling, about equal in ratio
_MOST_OPEN = 6  # open drafts from which on situations are one


class Next(NamedTuple):
    """What a drafter did next in a situation: it sent a draft before anything else happened."""

    delay: float  # seconds
    fresh: int | None  # draft tokens beyond the path that was sent before; None: an empty draft
    policy: RejectionPolicy


class Situation(NamedTuple):
    """The situation of a drafter, as the module describes."""

    last: str  # "opened", "sent", "confirmed", "missed" or "beyond"
    open: int
    ahead: int  # tokens
    since: float  # seconds since tokens were last learnt, behind a draft; else since the last draft
    self_continued: bool  # whether the verifier goes on by itself, as the last draft has said


class Standing:
    """Where a drafter stands: the text that it knows, and the drafts that it has sent behind it."""

    def __init__(self, known: int, now: float) -> None:
        """`known`: tokens of prompt and text that it knows now."""
        self.known = known
        self.path: list[int] = []  # the draft tokens sent behind the known text, as far as nothing contradicts them
        self._ends: list[int] = []  # of the open drafts, the position behind the last token
        self._last, self._sent_at, self._learnt_at, self._self_continued = "opened", now, now, False

    def sent(self, tokens: list[int], policy: RejectionPolicy, now: float) -> None:
        """Take in that a draft behind the known text was sent."""
        if policy.self_continue is not None:
            self._self_continued = policy.self_continue
        if len(tokens) > len(self.path):
            self.path = tokens
        self._ends.append(self.known + len(tokens))
        self._last, self._sent_at = "sent", now

    def learnt(self, tokens: Sequence[int], now: float) -> None:
        """Take in new committed tokens."""
        path, count = self.path, len(tokens)
        self.known += count
        self._learnt_at = now
        if count <= len(path) and path[:count] == tokens:
            self._last, self.path = "confirmed", path[count:]
            self._ends = [end for end in self._ends if end >= self.known]
        else:
            self._last = "beyond" if path == tokens[: len(path)] else "missed"
            self.path, self._ends = [], []

    def situation(self, now: float) -> Situation:
        other = self._learnt_at if self._last == "sent" else self._sent_at
        return Situation(self._last, len(self._ends), len(self.path), now - other, self._self_continued)


class _Rows:
    """The latest rows of a situation, in the order of their times."""

    def __init__(self) -> None:
        self.sorted: list[tuple[float, int, Next | None]] = []  # seconds, number, and the draft; None: something else
        self._by_age: deque[tuple[float, int, Next | None]] = deque()
        self._number = 0

    def add(self, seconds: float, did: Next | None) -> None:
        self._number += 1
        row = seconds, self._number, did
        insort(self.sorted, row)
        self._by_age.append(row)
        if len(self._by_age) > _KEPT:
            del self.sorted[bisect_left(self.sorted, self._by_age.popleft())]

    def draw(self, rng: random.Random) -> Next | None:
        rows, at = self.sorted, 0
        while at < len(rows):
            at += int(rng.random() * (len(rows) - at))
            if (did := rows[at][2]) is not None:
                return did
            at += 1
        return None


class Table:
    """What came next in each situation."""

    def __init__(self) -> None:
        self._rows: dict[tuple[object, ...], _Rows] = {}

    @property
    def rows(self) -> int:
        """How many rows it keeps."""
        return sum(len(each.sorted) for each in self._rows.values())

    def add(self, situation: Situation, seconds: float, did: Next | None) -> None:
        """Add what came after a situation had lasted for `seconds`; None: something else than a draft."""
        for key in _keys(situation):
            rows = self._rows.get(key)
            if rows is None:
                rows = self._rows[key] = _Rows()
            rows.add(seconds, did)

    def draw(self, situation: Situation, rng: random.Random) -> Next | None:
        """What a drafter does next; None: nothing before something else happens."""
        found = None
        for key in _keys(situation):
            rows = self._rows.get(key)
            if rows is not None:
                found = rows
                if len(rows.sorted) >= _LEAST:
                    break
        return None if found is None else found.draw(rng)


def _keys(situation: Situation) -> Iterator[tuple[object, ...]]:
    """The situation by itself, and together with others."""
    last, count, ahead, since, alone = situation
    count = min(count, _MOST_OPEN)
    lasted = _class_of(since)
    yield last, count, alone, lasted, ahead
    yield last, count, alone, lasted
    yield last, count, alone
    yield (last,)


def _class_of(seconds: float) -> int:
    """The class of a time, 0 for short ones. Without a logarithm, whose last bit differs between machines."""
    if seconds <= _SHORT:
        return 0
    mantissa, octave = frexp(seconds / _SHORT)
    return 3 * octave + (mantissa >= _THIRDS[0]) + (mantissa >= _THIRDS[1])
