"""Nodes as a policy sees them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from gateway.balancing import Candidate, NewText, Policy

C = TypeVar("C", bound=Candidate)


@dataclass(frozen=True)
class Node:
    name: str
    weight: float = 1.0
    queue: int = 0
    queue_time: float = 0.0
    work: float = 0.0
    deadline: float = math.inf


class Last(Policy):
    """A policy of a user's own."""

    def choose(self, order: Sequence[C], text: NewText) -> C:
        return order[-1]


class Unmade(Last):
    """One that cannot be made without arguments."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
