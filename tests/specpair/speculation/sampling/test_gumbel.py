"""The noise matches its specification: literal test vectors and a second implementation."""

import json
import math
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.gumbel import Purpose

VECTORS = json.loads(Path(__file__).with_name("gumbel-1.json").read_text(encoding="utf-8"))
LAST = 2**53 - 1


def one(seed: int, position: int, token: int, purpose: Purpose = Purpose.TOKEN) -> float:
    """The noise of one token, from the array function."""
    return float(gumbel.gumbel(gumbel.row_key(seed, position, purpose), np.array([token]))[0])


def of(h: int) -> float:
    return float(gumbel.gumbel_of(np.array([h], dtype=np.uint64))[0])


def test_vectors_are_for_the_noise_named_in_the_protocol() -> None:
    assert VECTORS["noise"] == gumbel.NAME
    assert len(VECTORS["vectors"]) >= 12


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda v: "-".join(map(str, v.values())))
def test_noise_matches_the_vectors(vector: dict[str, Any]) -> None:
    inputs = vector["seed"], vector["position"], vector["id"], Purpose(vector.get("purpose", 0))
    assert word53(*inputs) == vector["h"]
    assert math.isclose(of(vector["h"]), vector["G"], rel_tol=1e-14)
    assert math.isclose(one(*inputs), vector["G"], rel_tol=1e-14)
    key = gumbel.row_key(*inputs[:2], inputs[3])
    assert math.isclose(gumbel.gumbel_one(key, inputs[2]), vector["G"], rel_tol=1e-14)
    assert gumbel.uniform(key, inputs[2]) == vector["h"] / 2**53


@given(st.integers(0, LAST), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_noise_matches_the_reference_implementation(seed: int, position: int, token: int) -> None:
    expected = exact_gumbel(word53(seed, position, token))
    alone = gumbel.gumbel_one(gumbel.row_key(seed, position), token)
    assert math.isclose(one(seed, position, token), float(expected), rel_tol=1e-13, abs_tol=1e-15)
    assert math.isclose(alone, float(expected), rel_tol=1e-13, abs_tol=1e-15)


@given(st.integers(0, LAST) | st.sampled_from([0, 1, 2**52 - 1, 2**52, LAST - 1, LAST]))
def test_noise_of_every_word_is_exact(h: int) -> None:
    assert math.isclose(of(h), float(exact_gumbel(h)), rel_tol=1e-13, abs_tol=1e-15)


def test_noise_is_finite_at_both_ends_of_the_range() -> None:
    assert of(0) == pytest.approx(-math.log(54 * math.log(2)))  # u = 2**-54
    assert of(LAST) == pytest.approx(54 * math.log(2))  # 1 - u = 2**-54, where u itself rounds to 1
    edge = gumbel.gumbel_of(np.arange(2**52 - 3, 2**52 + 3, dtype=np.uint64))
    assert np.all(np.diff(edge) > 0), "the two formulas meet monotonically"


@pytest.mark.parametrize("seed", [-1, 2**53])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed must be .* got {seed}"):
        gumbel.row_key(seed, 0)


@given(st.integers(0, LAST) | st.sampled_from([0, 1, 2**52 - 1, 2**52, LAST - 1, LAST]), st.floats(-1e-10, 1e-10))
def test_least_high_misses_no_word(h: int, rounding: float) -> None:
    assert gumbel.least_high(of(h) + rounding) <= h >> 21


@given(st.floats(-3.6, 20.0))
def test_least_high_is_tight(reached: float) -> None:
    assert of((gumbel.least_high(reached) + 3) << 21) > reached, "three words later the noise exceeds the bound"


@given(
    st.integers(0, LAST),
    st.integers(0, 2**32 - 1),
    st.integers(1, 3000),
    st.sampled_from([0, 1, 100, 2999, 3000, 3001, 2**20, 2**31, 2**32]) | st.integers(0, 2**32),
)
def test_ids_from_finds_all_ids_of_the_high_words(seed: int, position: int, size: int, count: int) -> None:
    key = gumbel.row_key(seed, position)
    words = gumbel.high_words(key, gumbel.spread_ids(np.arange(size)))
    assert gumbel.ids_from(key, 2**32 - count, size).tolist() == np.flatnonzero(words >= 2**32 - count).tolist()


IDS = np.arange(200_000)


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


# A second implementation of `gumbel-1` from its specification: Python integers and 60 decimal digits, no NumPy.
WORD = 2**32
LANES = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


def permute(x: int, key: int = 0) -> int:
    x = (x ^ (x // 2**16)) * 0x7FEB352D % WORD
    x ^= key
    x = (x ^ (x // 2**15)) * 0x846CA68B % WORD
    return x ^ (x // 2**16)


def word53(seed: int, position: int, token: int, purpose: int = 0) -> int:
    """The 53-bit h of one token at one position."""
    keys = []
    for lane in LANES:
        state = lane
        for word in (seed % WORD, seed // WORD, position, purpose):
            state = (permute(state ^ word) + lane) % WORD
        keys.append(state)
    high = permute(token * 0x9E3779B9 % WORD ^ keys[0], keys[1])
    low = permute(high ^ keys[2], keys[3])
    return high * 2**21 + low // 2**11


def exact_gumbel(h: int) -> Decimal:
    """The Gumbel noise of the 53-bit word h, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        u = (Decimal(h) + Decimal("0.5")) / 2**53
        return -((-(u.ln())).ln())
