"""When conversations begin in an open workload, whatever becomes of those before."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, count, repeat
from typing import Protocol

from lab.simulator.chance import exponential, gamma
from lab.simulator.workload.distributions import Distribution


class Arrivals(Protocol):
    """An arrival process."""

    def times(self, rng: random.Random) -> Iterator[float]:
        """Seconds after the beginning, in ascending order, without end."""


@dataclass(frozen=True, slots=True)
class Deterministic:
    """`rate` a second, in equal distances."""

    rate: float

    def times(self, rng: random.Random) -> Iterator[float]:
        return (number / self.rate for number in count(1))


@dataclass(frozen=True, slots=True)
class Poisson:
    """`rate` a second on average, independent of each other."""

    rate: float

    def times(self, rng: random.Random) -> Iterator[float]:
        return accumulate(exponential(rng, 1.0 / self.rate) for _ in repeat(None))


@dataclass(frozen=True, slots=True)
class Gamma:
    """`rate` a second on average, with gaps of a gamma distribution.

    `cv`: standard deviation of a gap over its mean. 1 is Poisson; above, arrivals come in bursts, below, evenly.
    """

    rate: float
    cv: float

    def times(self, rng: random.Random) -> Iterator[float]:
        shape = 1.0 / (self.cv * self.cv)
        scale = 1.0 / (self.rate * shape)
        return accumulate(gamma(rng, shape, scale) for _ in repeat(None))


@dataclass(frozen=True, slots=True)
class OnOff:
    """Poisson at `rate` a second for `on` seconds, nothing for `off` seconds, and again (an interrupted Poisson
    process). The mean of `on` is above 0."""

    rate: float
    on: Distribution
    off: Distribution

    def times(self, rng: random.Random) -> Iterator[float]:
        begin = 0.0
        while True:
            end = begin + self.on.draw(rng)
            at = begin + exponential(rng, 1.0 / self.rate)
            while at < end:
                yield at
                at += exponential(rng, 1.0 / self.rate)
            begin = end + self.off.draw(rng)
