"""What a mode came to over one link."""

from dataclasses import dataclass

WARM_UP = 8  # tokens at the beginning of a stretch that are not timed
TURN, _SPAN = 24, 0.1  # tokens and seconds that make a measured rate: several rounds, whose tokens come in bursts
ENOUGH = 16  # timed tokens that are believed at all: fewer may have met a hiccup
_LATEST = 256.0  # tokens of a mode that count: older ones fade


@dataclass(slots=True)
class ModeMeasurement:
    """What a mode came to over one link: tokens, the seconds that they took, and the draft tokens among them."""

    tokens: float = 0.0
    seconds: float = 0.0
    accepted: float = 0.0
    compared: float = 0.0
    remembered: bool = False  # whether it is of an earlier run, and of this one nothing

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0.0 else 0.0

    @property
    def is_turn(self) -> bool:
        """Whether it is enough to go by. Until then it may be of a burst, which came while nobody waited for it."""
        return self.tokens >= TURN and (self.remembered or self.seconds >= _SPAN)

    @property
    def says_something(self) -> bool:
        """Whether it is worth remembering: a rate, or how draft tokens fared."""
        return (self.tokens >= ENOUGH and self.seconds >= _SPAN) or self.compared >= WARM_UP

    def learn(self, tokens: int, seconds: float, accepted: int, compared: int) -> None:
        """Take in what was written."""
        self.tokens += tokens
        self.seconds += seconds
        self.accepted += accepted
        self.compared += compared
        self.remembered = False
        if self.tokens > _LATEST:
            self.fade(_LATEST / self.tokens)

    def fade(self, keep: float) -> None:
        """Let what was seen count for less."""
        self.tokens, self.seconds = keep * self.tokens, keep * self.seconds
        self.accepted, self.compared = keep * self.accepted, keep * self.compared
