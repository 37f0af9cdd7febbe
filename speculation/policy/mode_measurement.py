"""Measured speed and acceptance of one mode over one link."""

from dataclasses import dataclass

WARM_UP = 8  # tokens at the beginning of a stretch that are not timed
TURN, _SPAN = 24, 0.1  # tokens and seconds for a measured rate: several rounds, because tokens come in bursts
ENOUGH = 16  # timed tokens below which a rate is ignored, since a network hiccup may dominate it
_LATEST = 256.0  # tokens of a mode that count; older ones fade


@dataclass(slots=True)
class ModeMeasurement:
    """Tokens of a mode over one link, the seconds that they took, and the draft tokens among them."""

    tokens: float = 0.0
    seconds: float = 0.0
    accepted: float = 0.0
    compared: float = 0.0
    remembered: bool = False  # whether all of it is from an earlier run

    @property
    def rate(self) -> float:
        """Tokens per second; 0.0 where nothing was timed."""
        return self.tokens / self.seconds if self.seconds > 0.0 else 0.0

    @property
    def is_turn(self) -> bool:
        """Whether it is enough for a rate. A shorter measurement may cover one burst of tokens only."""
        return self.tokens >= TURN and (self.remembered or self.seconds >= _SPAN)

    @property
    def worth_remembering(self) -> bool:
        """Whether it is worth remembering: it has a rate, or enough compared draft tokens."""
        return (self.tokens >= ENOUGH and self.seconds >= _SPAN) or self.compared >= WARM_UP

    def learn(self, tokens: int, seconds: float, accepted: int, compared: int) -> None:
        """Take in a stretch of text."""
        self.tokens += tokens
        self.seconds += seconds
        self.accepted += accepted
        self.compared += compared
        self.remembered = False
        if self.tokens > _LATEST:
            self.fade(_LATEST / self.tokens)

    def fade(self, keep: float) -> None:
        """Multiply all counts by `keep`."""
        self.tokens, self.seconds = keep * self.tokens, keep * self.seconds
        self.accepted, self.compared = keep * self.accepted, keep * self.compared
