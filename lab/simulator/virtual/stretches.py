"""A law of agreement with memory: a text has easy and hard stretches, as real texts have.

Where a drafter was right, it is likelier to be right again. So draft tokens far behind in a draft, reached only if all
before them agreed, agree more often than first ones, and a controller that learns within a text has something to learn.
"""

import random
from dataclasses import dataclass

from lab.simulator.virtual.agreement import OfText


@dataclass(frozen=True)
class Stretches:
    """Easy and hard stretches by turns, whose lengths are geometrically distributed; the text begins within one.

    `easy`, `hard`: the chances that a draft token is right, those before it being right.
    `easy_tokens`, `hard_tokens`: mean lengths, at least 1.
    """

    easy: float
    hard: float
    easy_tokens: float
    hard_tokens: float

    def __post_init__(self) -> None:
        """Raises ValueError for chances that are none, and for lengths below 1."""
        if not all(0.0 <= each <= 1.0 for each in (self.easy, self.hard)):
            raise ValueError(f"easy and hard are chances from 0 to 1, got {self.easy:g} and {self.hard:g}")
        if min(self.easy_tokens, self.hard_tokens) < 1.0:
            raise ValueError(f"stretches have at least 1 token, got {min(self.easy_tokens, self.hard_tokens):g}")

    @property
    def mean(self) -> float:
        """The chance over all tokens."""
        easy, hard = self.easy * self.easy_tokens, self.hard * self.hard_tokens
        return (easy + hard) / (self.easy_tokens + self.hard_tokens)

    def of_text(self, kind: str, rng: random.Random) -> OfText:
        easy = [rng.random() < self.easy_tokens / (self.easy_tokens + self.hard_tokens)]  # by position in the output

        def chance(position: int, at: int) -> float:
            while len(easy) <= at:
                ends = rng.random() < 1.0 / (self.easy_tokens if easy[-1] else self.hard_tokens)
                easy.append(easy[-1] is not ends)
            return self.easy if easy[at] else self.hard

        return chance
