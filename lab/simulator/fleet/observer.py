"""Who learns of what happens in a fleet. Times in seconds since the beginning."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lab.simulator.fleet.record import Record


@dataclass(frozen=True, slots=True)
class Sample:
    """A verifier at a moment."""

    at: float
    node: str
    kind: str
    up: bool  # whether it is there
    texts: int  # under way there
    waiting: int  # requests that wait for a pass
    held: int  # slots in use
    slots: int
    passes: int  # since the beginning, as the next three
    busy: float  # seconds of passes
    rows: int  # sequences of all passes
    tokens: int  # tokens of all passes


class Observer(Protocol):
    """It is told of each request, and from time to time of the verifiers."""

    def record(self, record: Record) -> None:
        """A request is over."""

    def sample(self, samples: Sequence[Sample]) -> None:
        """All verifiers at one moment, those that are lost included."""
