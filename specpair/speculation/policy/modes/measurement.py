"""Measured speed and acceptance rate of one mode over one link."""

from dataclasses import dataclass

WARM_UP = 8  # tokens at the beginning of a stretch that are not timed
TURN, _SPAN = 24, 0.1  # least tokens and seconds of a measured rate: several rounds, because tokens come in bursts
ENOUGH = 16  # timed tokens below which a rate is ignored, since a network hiccup may dominate it
_LATEST = 256.0  # most tokens of a mode that count; older ones fade


@dataclass(slots=True)
class ModeMeasurement:
    """Timed tokens of a mode over one link, the seconds that they took, and what became of its draft tokens."""

    tokens: float = 0.0
    seconds: float = 0.0
    accepted: float = 0.0  # of the compared draft tokens
    compared: float = 0.0  # draft tokens that were compared with the target's choice
    remembered: bool = False  # whether everything measured is from an earlier run

    @property
    def rate(self) -> float:
        """Tokens per second; 0.0 where nothing was timed."""
        return self.tokens / self.seconds if self.seconds > 0.0 else 0.0

    @property
    def is_turn(self) -> bool:
        """Whether it is long enough for `rate` to count. A shorter one may cover one burst of tokens only."""
        return self.tokens >= TURN and (self.remembered or self.seconds >= _SPAN)

    @property
    def worth_remembering(self) -> bool:
        """Whether to remember it for later runs: it has enough timed tokens, or enough compared draft tokens."""
        return (self.tokens >= ENOUGH and self.seconds >= _SPAN) or self.compared >= WARM_UP

    def learn(self, tokens: int, seconds: float, accepted: int, compared: int) -> None:
        """Take in a stretch of text: timed tokens, their seconds, and accepted ones among compared draft tokens."""
        self.tokens += tokens
        self.seconds += seconds
        self.accepted += accepted
        self.compared += compared
        self.remembered = False
        if self.tokens > _LATEST:
            self.fade(_LATEST / self.tokens)

    def fade(self, keep: float) -> None:
        """Multiply all counts, and the seconds, by `keep` (0 to 1)."""
        self.tokens, self.seconds = keep * self.tokens, keep * self.seconds
        self.accepted, self.compared = keep * self.accepted, keep * self.compared
