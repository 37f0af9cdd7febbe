"""The noise behaves like independent Gumbel variables over ids, over positions and over seeds."""

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from specpair.speculation.sampling import gumbel

IDS = np.arange(200_000)
EULER = 0.5772156649015329


def gumbels(seed: int, position: int) -> NDArray[np.float64]:
    return gumbel.gumbel(gumbel.row_key(seed, position), IDS)


def uniforms(seed: int, position: int) -> NDArray[np.float64]:
    return np.exp(-np.exp(-gumbels(seed, position)))


def correlation(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """The correlation in units of its standard deviation for independent series."""
    return float(np.corrcoef(left, right)[0, 1]) * math.sqrt(len(left))


SERIES = ("over ids", "over positions", "over seeds")


@cache
def series(name: str) -> NDArray[np.float64]:
    """Uniform values along one input, with the others fixed."""
    if name == "over ids":
        return uniforms(3, 5)
    keys = [(3, n) if name == "over positions" else (n, 5) for n in range(20_000)]
    return np.exp(-np.exp(-np.array([gumbel.gumbel(gumbel.row_key(*key), IDS[9:10])[0] for key in keys])))


@pytest.mark.parametrize("name", SERIES)
def test_values_are_uniform(name: str) -> None:
    """Kolmogorov-Smirnov test: the greatest distance to the uniform distribution function."""
    values = np.sort(series(name))
    count = len(values)
    distance = max(np.max(np.arange(1, count + 1) / count - values), np.max(values - np.arange(count) / count))
    assert distance * math.sqrt(count) < 1.95  # 1 of 1,000 uniform series fails by chance


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("lag", [1, 2, 3, 16, 32, 256, 4096])
def test_neighbours_are_independent(name: str, lag: int) -> None:
    values = series(name)
    assert abs(correlation(values[lag:], values[:-lag])) < 4


def test_moments_of_the_gumbel_distribution() -> None:
    values = gumbels(11, 0)
    deviation = math.pi / math.sqrt(6)
    assert abs(values.mean() - EULER) < 4 * deviation / math.sqrt(len(values))
    # The fourth central moment of a Gumbel variable is 5.4 variances squared, which gives the error of the variance.
    assert abs(values.var() - deviation**2) < 4 * deviation**2 * math.sqrt(4.4 / len(values))


def test_every_bit_is_set_half_of_the_time() -> None:
    words = gumbel.high_words(gumbel.row_key(5, 6), gumbel.spread_ids(IDS))
    for bit in range(32):
        share = float(((words >> np.uint32(bit)) & np.uint32(1)).mean())
        assert abs(share - 0.5) < 4 * 0.5 / math.sqrt(len(IDS)), f"bit {bit}"


NEIGHBOURS = {
    "seeds 1 apart": ((20, 7), (21, 7)),
    "seeds in one bit, high word": ((20, 7), (20 + 2**32, 7)),
    "positions 1 apart": ((20, 7), (20, 8)),
    "seed and position swapped": ((20, 7), (7, 20)),
    "same sum of seed and position": ((20, 7), (19, 8)),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbouring_keys_are_uncorrelated_and_not_shifts_of_each_other(name: str) -> None:
    left, right = (uniforms(*key) for key in NEIGHBOURS[name])
    for shift in (0, 1, 2, 3, 64, 1000):
        assert abs(correlation(left[shift:], right[: len(right) - shift])) < 4
        assert abs(correlation(right[shift:], left[: len(left) - shift])) < 4
    # If one were a shift of the other (by any number of ids), they would share values; by chance they share none.
    assert not set(left.tolist()) & set(right.tolist())


def test_positions_are_not_shifts_over_seeds() -> None:
    """The value at (seed, position) does not occur at neighbouring seeds and positions."""
    table = np.array(
        [[gumbel.gumbel(gumbel.row_key(seed, at), np.array([0]))[0] for at in range(60)] for seed in range(60)]
    )
    assert len(np.unique(table)) == table.size


def test_each_purpose_has_its_own_key() -> None:
    token = gumbel.row_key(4, 4, gumbel.Purpose.TOKEN)
    assert token == gumbel.row_key(4, 4)
    assert len({gumbel.row_key(4, 4, purpose) for purpose in gumbel.Purpose}) == len(gumbel.Purpose)
