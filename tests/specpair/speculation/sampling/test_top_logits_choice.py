"""Choosing from the top logits of a row gives the same tokens as choosing from the whole row."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specpair.speculation.sampling.sampling import Logits, Sampling, choose, choose_reference, choose_two, probability
from specpair.speculation.sampling.top_logits import TopLogits
from tests.examples import examples
from tests.specpair.speculation.rows import (
    SHAPES,
    Device,
    device_and_top_logits,
    logits_of,
    positions,
    rows,
    samplings,
    seeds,
    shares,
    small_rows,
    temperatures,
    top_ps,
    unfiltered,
)

few_values = st.lists(st.sampled_from([-np.inf, -3.0, 0.0, -0.0, 0.5, 1.0, 9.0]), min_size=1, max_size=12).filter(
    lambda row: max(row) > -np.inf
)
tied_rows = few_values.map(lambda row: np.array(row, np.float32))
any_rows = rows | small_rows | tied_rows
greedy = st.builds(Sampling, st.just(1), st.floats(0, 9e-4), st.integers(0, 9), top_ps)
small_filters = st.builds(Sampling, st.integers(0, 2**53 - 1), temperatures, st.integers(0, 13), top_ps)
any_samplings = samplings | small_filters | unfiltered | greedy


@examples(300)
@given(any_rows, any_samplings, positions, shares, seeds)
def test_top_logits_choose_the_token_of_the_definition(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device, top = device_and_top_logits(row, share, sampling, seed)
    assert choose(top, sampling, position) == choose_reference(row, sampling, position)
    assert choose(top, sampling, position) == choose(row, sampling, position)
    assert device.asked <= 1, "the fetched row is cached"


@examples(300)
@given(any_rows, any_samplings, positions, shares, seeds)
def test_second_choice_is_that_of_the_whole_row(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device, top = device_and_top_logits(row, share, sampling, seed)
    assert choose_two(top, sampling, position) == choose_two(row, sampling, position)
    assert device.asked <= 1
    assert choose(top, sampling, position) == choose_reference(row, sampling, position), "the top logits are unchanged"


@examples(150)
@given(any_rows, unfiltered, positions, shares, seeds)
def test_probability_is_that_of_the_whole_row(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device, top = device_and_top_logits(row, share, sampling, seed)
    token = choose(top, sampling, position)
    scaled = row.astype(np.float64) / sampling.softmax_temperature
    exact = float(np.exp(scaled[token] - scaled.max()) / np.exp(scaled - scaled.max()).sum())
    # float32 keeps seven digits of a scaled logit, whose error is a relative error of the probability
    tolerance = 1e-5 + 4e-7 * float(np.abs(scaled[np.isfinite(scaled)]).max())
    assume(tolerance < 0.1)
    assert probability(top, token, sampling) == pytest.approx(exact, rel=tolerance)
    assert probability(row, token, sampling) == pytest.approx(exact, rel=tolerance)
    assert device.asked <= 1


@examples(300)
@given(any_rows, any_samplings, positions, shares, seeds, st.floats(-0.99, 0.99))
def test_a_small_error_of_the_sum_does_not_matter(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int, off: float
) -> None:
    top = off_by(device_and_top_logits(row, share, sampling, seed)[1], off)
    assert choose_two(top, sampling, position) == choose_two(row, sampling, position)


def off_by(top: TopLogits, part: float) -> TopLogits:
    """The top logits with a sum that is off by `part` of the allowed error."""
    log_sum = top.log_sum + float(np.log1p(part * top.doubt)) if top.doubt < 1.0 else top.log_sum
    return TopLogits(top.ids, top.logits, top.size, top.temperature, log_sum, top.full)


@pytest.mark.parametrize("off", [-0.9, 0.9])
def test_nucleus_that_ends_exactly_at_an_id_needs_the_whole_row(off: float) -> None:
    """The two likeliest ids have almost exactly the mass top_p, so only the whole row decides whether a third is in."""
    row = np.log(np.array([0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125])).astype(np.float32)
    sampling = Sampling(1, 1.0, top_p=0.75)
    asked = 0
    for position in range(100):
        device = Device(row)
        token = choose(off_by(device.top_logits(4, 1.0), off), sampling, position)
        assert token == choose_reference(row, sampling, position)
        asked += device.asked
    assert 0 < asked < 60, "only where the third would win"


@pytest.mark.parametrize("shape", SHAPES)
def test_top_logits_match_the_whole_row_for_152_000_ids(shape: str) -> None:
    row = logits_of(shape, 152_064, 7)
    for position in range(3):
        top = Device(row, position).top_logits(1024, 0.8)
        for top_k, top_p in product([0, 40, 2000], [1.0, 0.95, 0.5]):
            sampling = Sampling(4, 0.8, top_k, top_p)
            assert choose_two(top, sampling, position) == choose_two(row, sampling, position), sampling


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1, 1.0), Sampling(1, 1.0, 2), Sampling(1, 1.0, 0, 0.5)])
@pytest.mark.parametrize(
    ("logits", "log_sum"),
    [
        ([2.0, np.nan], np.nan),
        ([np.nan, 2.0], 3.0),
        ([np.inf, 2.0], np.inf),
        ([np.inf, 2.0], 3.0),
        ([2.0, 1.0], np.nan),  # the NaN lies outside
        ([-np.inf, -np.inf], -np.inf),
        ([-np.inf], -np.inf),
        ([np.nan], np.nan),
        ([1.0], np.nan),
    ],
)
def test_invalid_top_logits_are_refused(logits: list[float], log_sum: float, sampling: Sampling) -> None:
    top = TopLogits(np.arange(len(logits)), np.array(logits, np.float32), 9, 1.0, log_sum, unused)
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose(top, sampling, 0)
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose_two(top, sampling, 0)
    with pytest.raises(ValueError, match="without a finite maximum"):
        probability(top, 0, sampling)


def unused() -> Logits:
    raise AssertionError("the whole row is not needed")


def test_top_logits_of_another_temperature_are_refused_where_it_matters() -> None:
    top = Device(np.arange(9, dtype=np.float32)).top_logits(4, 0.5)
    with pytest.raises(ValueError, match=r"temperature 0\.7 .* not 0\.5"):
        choose(top, Sampling(1, 0.7, 0, 0.9), 0)
    with pytest.raises(ValueError, match=r"temperature 0\.7 .* not 0\.5"):
        probability(top, 8, Sampling(1, 0.7))
    with pytest.raises(ValueError, match=r"temperature 1\.0 .* not 0\.5"):
        probability(top, 8, Sampling(1, 0.0))
    row = Device(np.arange(9, dtype=np.float32)).row
    for sampling in (Sampling(1, 0.0, 0, 0.9), Sampling(1, 0.7), Sampling(1, 0.7, 3)):
        assert choose(top, sampling, 0) == choose(row, sampling, 0), "the sum is not used"
