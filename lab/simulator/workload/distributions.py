"""Distributions of lengths and durations."""

import random
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

from lab.simulator.chance import exponential, log, log_normal


class Distribution(Protocol):
    """A distribution of numbers, none of them negative."""

    def draw(self, rng: random.Random) -> float:
        """A value."""


@dataclass(frozen=True, slots=True)
class Constant:
    value: float

    def draw(self, rng: random.Random) -> float:
        return self.value


ZERO, ONE = Constant(0.0), Constant(1.0)


@dataclass(frozen=True, slots=True)
class Uniform:
    """All values between `least` and `most` alike."""

    least: float
    most: float

    def draw(self, rng: random.Random) -> float:
        return rng.uniform(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Exponential:
    mean: float

    def draw(self, rng: random.Random) -> float:
        return exponential(rng, self.mean)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """`cv`: standard deviation over mean, above 0. Both are those before values beyond `least` and `most` become
    these."""

    mean: float
    cv: float
    least: float = 0.0
    most: float = float("inf")

    def draw(self, rng: random.Random) -> float:
        variance = log(1.0 + self.cv * self.cv)  # of the logarithm
        drawn = log_normal(rng, log(self.mean) - variance / 2, sqrt(variance))
        return min(max(drawn, self.least), self.most)


@dataclass(frozen=True, slots=True)
class Empirical:
    """One of `values`, each as likely."""

    values: tuple[float, ...]

    def draw(self, rng: random.Random) -> float:
        return rng.choice(self.values)


def whole(distribution: Distribution, rng: random.Random) -> int:
    """A drawn number of tokens or turns: the nearest whole one, at least 1."""
    return max(1, round(distribution.draw(rng)))
