"""When a device is there: a phone comes and goes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from lab.simulator.workload.distributions import Distribution


class Availability(Protocol):
    """When a device is there."""

    def periods(self, rng: random.Random) -> Iterator[tuple[float, float]]:
        """(from, until) in seconds, in ascending order, without overlaps, made as they are asked for."""


@dataclass(frozen=True, slots=True)
class Always:
    def periods(self, rng: random.Random) -> Iterator[tuple[float, float]]:
        yield 0.0, float("inf")


@dataclass(frozen=True, slots=True)
class ComesAndGoes:
    """There for `on` seconds, away for `off` seconds, by turns.

    `there_at_first`: the chance that the device is there at time 0. The period that then runs begins there: it is a
        whole one.
    """

    on: Distribution
    off: Distribution
    there_at_first: float

    def periods(self, rng: random.Random) -> Iterator[tuple[float, float]]:
        at = 0.0 if rng.random() < self.there_at_first else self.off.draw(rng)
        while True:
            until = at + self.on.draw(rng)
            if until > at:
                yield at, until
            at = until + self.off.draw(rng)
