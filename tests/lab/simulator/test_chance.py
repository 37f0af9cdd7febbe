"""Draws that do not depend on the last bits of a machine's logarithms, and are distributed as they should be."""

import math
import random
from collections.abc import Callable
from statistics import fmean, pvariance
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator import chance

DRAWS: dict[str, Callable[[random.Random], float]] = {
    "exponential": lambda rng: chance.exponential(rng, 2.0),
    "log-normal": lambda rng: chance.log_normal(rng, 1.0, 0.5),
    "gamma, even": lambda rng: chance.gamma(rng, 4.0, 0.5),
    "gamma, in bursts": lambda rng: chance.gamma(rng, 0.2, 10.0),
}


@given(st.floats(1e-300, 1e300), st.floats(-600, 600))
def test_logarithms_and_exponentials_are_right_to_twelve_digits(value: float, power: float) -> None:
    assert chance.log(value) == pytest.approx(math.log(value), rel=2e-12, abs=1e-300)
    assert chance.exp(power) == pytest.approx(math.exp(power), rel=2e-12)


@pytest.mark.parametrize("name", DRAWS)
def test_other_last_bits_change_no_draw(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(name)
    expected = [DRAWS[name](rng) for _ in range(10_000)]
    noise = random.Random(0)

    def noisy(function: Callable[[float], float]) -> Callable[[float], float]:
        return lambda value: function(value) + noise.randint(-4, 4) * math.ulp(function(value))

    other = SimpleNamespace(**vars(math))
    other.log, other.exp = noisy(math.log), noisy(math.exp)
    monkeypatch.setattr(chance, "math", other)
    rng = random.Random(name)
    assert [DRAWS[name](rng) for _ in range(10_000)] == expected


@pytest.mark.parametrize(
    ("name", "mean", "variance"),
    [
        ("exponential", 2.0, 4.0),
        ("log-normal", math.exp(1.125), (math.exp(0.25) - 1) * math.exp(2.25)),
        ("gamma, even", 2.0, 1.0),
        ("gamma, in bursts", 2.0, 20.0),
    ],
)
def test_draws_have_their_mean_and_their_variance(name: str, mean: float, variance: float) -> None:
    rng = random.Random(1)
    drawn = [DRAWS[name](rng) for _ in range(40_000)]
    assert fmean(drawn) == pytest.approx(mean, rel=0.04)
    assert pvariance(drawn) == pytest.approx(variance, rel=0.12)
