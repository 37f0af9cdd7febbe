"""The question that every model of costs answers: how many seconds a forward pass takes."""

from collections.abc import Sequence
from typing import Protocol

# What a pass does for one sequence: (new tokens, tokens in its KV cache before the pass).
SequencePass = tuple[int, int]


class PassCost(Protocol):
    """What forward passes take on one engine."""

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        """Seconds of one forward pass over `sequences`; 0.0 for a pass over none.

        Raises CostUnknown for a pass of which the model can say nothing.
        """
        ...


class CostUnknown(ValueError):
    """A model of costs is asked for a pass that lies too far from what it knows."""


class BadCost(ValueError):
    """A file or a value from which a model of costs is made is no such thing: the message says what and where."""
