"""Which of several ways to write a text is the fastest, found out while writing it.

Each way writes a stretch of the text, and its rate is measured; the fastest writes the rest. Stretches differ in how
well they can be foreseen, so where two ways are close, all have a second and a third turn. When the link has changed,
what was measured over it says nothing any more, and the turns begin anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

WARM_UP = 8  # tokens at the beginning of a turn that are not timed
_STRETCH, _SPAN = 24, 0.1  # tokens and seconds that a turn lasts at least: several guesses, whose tokens come in bursts
_CLEAR = 1.2  # times the second best: no further turn would change it
_TURNS = 3
_CHANGED, _CHANGED_MS = 0.4, 5.0  # share of the round trip, and milliseconds (a busy machine is late by some)


@dataclass(slots=True)
class _Turns:
    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0.0 else 0.0

    @property
    def count(self) -> int:
        """How many turns these make up."""
        return min(self.tokens // _STRETCH, int(self.seconds / _SPAN))


@dataclass(slots=True)
class Choice:
    """Asked before each stretch, told after it. `ways`: the names of what there is, at least one."""

    ways: Sequence[str]
    link_ms: float = 0.0  # the round trip over which they are measured
    _turns: dict[str, _Turns] = field(default_factory=dict)
    _settled: str | None = None
    _latest: str | None = None

    def __post_init__(self) -> None:
        self.begin(self.link_ms)

    @property
    def settled(self) -> str | None:
        """The way that is the fastest; None while the turns are not over."""
        return self._settled

    @property
    def rates(self) -> dict[str, float]:
        """Tokens per second that each way was measured at, the fastest first; without those whose turn is not over.

        Until then it may be of a burst of tokens, which came while nobody waited for them.
        """
        measured = {way: turns.rate for way, turns in self._turns.items() if turns.count}
        return dict(sorted(measured.items(), key=lambda pair: pair[1], reverse=True))

    def next(self) -> str:
        """The way to write what comes next, until told otherwise; for good once it is `settled`."""
        # The one that had the last turn goes on, where it is as good as any: to change takes time.
        return self._settled or min(self.ways, key=lambda way: (self._turns[way].count, way != self._latest))

    def measured(self, way: str, tokens: int, seconds: float) -> None:
        """So much was written so. What was measured when the choice was made stays as it was, to be its reason."""
        self._latest = way
        if self._settled is not None:
            return
        turns = self._turns[way]
        turns.tokens += tokens
        turns.seconds += seconds
        had = min(turns.count for turns in self._turns.values())
        if had:
            (first, best), (_, second), *_ = self.rates.items()
            if best >= _CLEAR * second or had >= _TURNS:
                self._settled = first

    def differs(self, round_trip_ms: float) -> bool:
        """Whether this is another link than the one that was measured over."""
        return abs(round_trip_ms - self.link_ms) >= max(_CHANGED_MS, _CHANGED * self.link_ms)

    def begin(self, round_trip_ms: float) -> None:
        """Begin the turns, over a link of this round trip."""
        self.link_ms = round_trip_ms
        self._turns = {way: _Turns() for way in self.ways}
        self._settled = self.ways[0] if len(self.ways) == 1 else None

    def why(self) -> str:
        """What was measured, in words."""
        if not self.rates:
            return "not measured yet" if len(self.ways) > 1 else f"there is only {self.ways[0]}"
        rates = ", ".join(f"{way} {rate:.1f}" for way, rate in self.rates.items())
        return f"{rates} tokens/s at a round trip of {self.link_ms:.1f} ms"
