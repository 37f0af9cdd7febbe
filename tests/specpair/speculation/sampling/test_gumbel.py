"""The noise matches its specification: literal test vectors and a second implementation."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.gumbel import Purpose
from tests.specpair.speculation.sampling import gumbel_reference

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
    assert gumbel_reference.word53(*inputs) == vector["h"]
    assert math.isclose(of(vector["h"]), vector["G"], rel_tol=1e-14)
    assert math.isclose(one(*inputs), vector["G"], rel_tol=1e-14)
    key = gumbel.row_key(*inputs[:2], inputs[3])
    assert math.isclose(gumbel.gumbel_one(key, inputs[2]), vector["G"], rel_tol=1e-14)
    assert gumbel.uniform(key, inputs[2]) == vector["h"] / 2**53


def test_every_purpose_has_vectors() -> None:
    assert {vector.get("purpose", 0) for vector in VECTORS["vectors"]} == {0, 1, 2, 3} == set(Purpose)


@given(st.integers(0, LAST), st.integers(0, 2**32 - 1), st.sampled_from(Purpose))
def test_uniform_is_the_word_of_id_0(seed: int, position: int, purpose: Purpose) -> None:
    u = gumbel.uniform(gumbel.row_key(seed, position, purpose))
    assert u * 2**53 == gumbel_reference.word53(seed, position, 0, purpose)
    assert 0.0 <= u < 1.0


def test_numbers_of_different_purposes_are_independent() -> None:
    drawn = np.array([[gumbel.uniform(gumbel.row_key(1, at, purpose)) for at in range(4000)] for purpose in Purpose])
    assert np.abs(drawn.mean(axis=1) - 0.5).max() < 0.02
    assert np.abs(np.corrcoef(drawn) - np.eye(len(Purpose))).max() < 0.06


@given(st.integers(0, LAST), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_noise_matches_the_reference_implementation(seed: int, position: int, token: int) -> None:
    expected = gumbel_reference.gumbel(gumbel_reference.word53(seed, position, token))
    alone = gumbel.gumbel_one(gumbel.row_key(seed, position), token)
    assert math.isclose(one(seed, position, token), float(expected), rel_tol=1e-13, abs_tol=1e-15)
    assert math.isclose(alone, float(expected), rel_tol=1e-13, abs_tol=1e-15)


@given(st.integers(0, LAST) | st.sampled_from([0, 1, 2**52 - 1, 2**52, LAST - 1, LAST]))
def test_noise_of_every_word_is_exact(h: int) -> None:
    assert math.isclose(of(h), float(gumbel_reference.gumbel(h)), rel_tol=1e-13, abs_tol=1e-15)


def test_noise_is_finite_at_both_ends_of_the_range() -> None:
    assert of(0) == pytest.approx(-math.log(54 * math.log(2)))  # u = 2**-54
    assert of(LAST) == pytest.approx(54 * math.log(2))  # 1 - u = 2**-54, where u itself rounds to 1
    edge = gumbel.gumbel_of(np.arange(2**52 - 3, 2**52 + 3, dtype=np.uint64))
    assert np.all(np.diff(edge) > 0), "the two formulas meet monotonically"


def test_noise_of_many_ids_equals_that_of_each() -> None:
    key = gumbel.row_key(7, 3)
    ids = np.array([[5, 0, 151_935], [17, 5, 1]])
    together = gumbel.gumbel(key, ids)
    assert together.shape == ids.shape
    assert together.dtype == np.float64
    assert together.tolist() == [[one(7, 3, token) for token in row] for row in ids.tolist()]


def test_high_words_are_those_of_the_reference() -> None:
    key, ids = gumbel.row_key(1, 2), np.arange(1000)
    spread = gumbel.spread_ids(ids)
    high = gumbel.high_words(key, spread)
    assert [word >> 21 for word in (gumbel_reference.word53(1, 2, token) for token in range(50))] == high[:50].tolist()
    assert np.array_equal(spread, gumbel.spread_ids(ids)), "the input was not written to"


@pytest.mark.parametrize("seed", [-1, 2**53])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed must be .* got {seed}"):
        gumbel.row_key(seed, 0)


@pytest.mark.parametrize("position", [-1, 2**32])
def test_positions_out_of_range_are_refused(position: int) -> None:
    with pytest.raises(ValueError, match=f"position must be .* got {position}"):
        gumbel.row_key(0, position)


@given(st.integers(0, LAST) | st.sampled_from([0, 1, 2**52 - 1, 2**52, LAST - 1, LAST]), st.floats(-1e-10, 1e-10))
def test_least_high_misses_no_word(h: int, rounding: float) -> None:
    assert gumbel.least_high(of(h) + rounding) <= h >> 21


@given(st.floats(-3.6, 20.0))
def test_least_high_is_tight(reached: float) -> None:
    assert of((gumbel.least_high(reached) + 3) << 21) > reached, "three words later the noise exceeds the bound"


def test_least_high_at_the_ends_of_the_noise() -> None:
    assert gumbel.least_high(-3.64) == gumbel.least_high(-1e9) == gumbel.least_high(-math.inf) == 0
    assert gumbel.least_high(of(LAST)) == 2**32 - 1
    assert gumbel.least_high(of(LAST) + 1e-6) == gumbel.least_high(1e9) == gumbel.least_high(math.inf) == 2**32


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


def test_ids_from_inverts_few_words_of_a_large_vocabulary() -> None:
    """The vocabulary is so large that some ids have the highest words, and fewer words than ids are searched."""
    key, size = gumbel.row_key(5, 6), 4_000_000
    words = gumbel.high_words(key, gumbel.spread_ids(np.arange(size)))
    for count in (1, 5000, size):
        found = gumbel.ids_from(key, 2**32 - count, size)
        assert found.tolist() == np.flatnonzero(words >= 2**32 - count).tolist()
    assert len(found) > 3000
    highest = int(words.argmax())
    for size, ids in ((highest, []), (highest + 1, [highest])):
        assert gumbel.ids_from(key, int(words[highest]), size).tolist() == ids, "ids are below the size"
