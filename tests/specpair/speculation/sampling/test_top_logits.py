"""The contents of TopLogits, in whatever order the device gives them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specpair.speculation.sampling import full_logits, gumbel
from specpair.speculation.sampling.sampling import (
    Logits,
    Sampling,
    choose,
    choose_reference,
    choose_several,
    probabilities,
)
from specpair.speculation.sampling.top_logits import TopLogits, top_logits_of
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


def top_logits(ids: list[int], logits: list[float], size: int = 100) -> TopLogits:
    return TopLogits(np.array(ids), np.array(logits, np.float32), size, 1.0, 5.0, lambda: np.zeros(size, np.float32))


@pytest.mark.parametrize(("ids", "logits", "size"), [([], [], 9), ([1, 2], [1], 9), ([0, 1], [1, 1], 1)])
def test_wrong_shapes_are_refused(ids: list[int], logits: list[float], size: int) -> None:
    with pytest.raises(ValueError, match="top logits with ids of shape"):
        top_logits(ids, logits, size)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan])
def test_temperature_must_be_positive(temperature: float) -> None:
    with pytest.raises(ValueError, match=f"top logits at temperature {temperature}"):
        TopLogits(np.array([1]), np.ones(1, np.float32), 9, temperature, 5.0, lambda: np.zeros(9, np.float32))


def test_whole_row_of_another_size_is_refused() -> None:
    one = TopLogits(np.array([1]), np.ones(1, np.float32), 9, 1.0, 5.0, lambda: np.zeros(8, np.float32))
    with pytest.raises(ValueError, match=r"returned a row of shape \(8,\), not \(9,\)"):
        one.whole()


def test_without_masks_one_token() -> None:
    row = np.array([0.0, 3.0, 2.0, 1.0, -1.0], np.float32)
    device = Device(row)
    rest = device.top_logits(3, 0.5).without(1)
    assert rest.ids.tolist() == [1, 3]
    assert (rest.sure, rest.outside) == (1, 2)
    assert rest.log_sum == pytest.approx(np.log(np.exp(np.delete(row, 2) / 0.5).sum()), abs=1e-5)
    assert rest.whole().tolist() == [0.0, 3.0, -np.inf, 1.0, -1.0]
    assert device.asked == 1
    share = np.exp(2.0 / 0.5) / np.exp(row / 0.5).sum()
    assert rest.doubt == pytest.approx(device.top_logits(3, 0.5).doubt / (1 - share), rel=1e-4)
    assert device.top_logits(3, 0.5).without(2).sure == 2, "the last id was not sure"
    sole = device.top_logits(3, 0.05).without(0)
    assert sole.doubt >= 1.0, "the rest of the sum is less than its rounding"


@given(rows | small_rows, st.integers(1, 5000), st.sampled_from([0.3, 1.0, 7.0]))
def test_top_logits_of_a_row_on_the_host(row: Logits, n: int, temperature: float) -> None:
    n = min(n, len(row))
    one, other = top_logits_of(row, n, temperature), Device(row).top_logits(n, temperature)
    assert np.array_equal(one.logits, other.logits)
    assert np.array_equal(one.logits, row[one.ids])
    assert one.log_sum == pytest.approx(other.log_sum, rel=1e-5, abs=1e-5)
    assert one.whole() is row


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [1.0, np.nan, 2.0], [-np.inf, -np.inf], [np.inf, 1.0]])
@pytest.mark.parametrize("n", [1, 2])
def test_top_logits_of_an_invalid_row_are_refused(bad: list[float], n: int) -> None:
    with pytest.raises(ValueError, match="without a finite maximum"):
        top_logits_of(np.array(bad, np.float32), n, 1.0).check()


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
    before = row.copy()
    device, top = device_and_top_logits(row, share, sampling, seed)
    assert choose(top, sampling, position) == choose_reference(row, sampling, position)
    assert choose(top, sampling, position) == choose(row, sampling, position)
    assert np.array_equal(row, before), "the engine's logits were not written to"
    assert device.asked <= 1, "the fetched row is cached"


@examples(300)
@given(any_rows, any_samplings, positions, shares, seeds)
def test_second_choice_is_that_of_the_whole_row(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device, top = device_and_top_logits(row, share, sampling, seed)
    assert choose_several(top, sampling, position, 2) == choose_several(row, sampling, position, 2)
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
    assert probabilities(top, [token], sampling) == pytest.approx([exact], rel=tolerance)
    assert probabilities(row, [token], sampling) == pytest.approx([exact], rel=tolerance)
    assert device.asked <= 1


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
            assert choose_several(top, sampling, position, 2) == choose_several(row, sampling, position, 2), sampling
            assert choose(row, sampling, position) == choose_reference(row, sampling, position), sampling


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
        choose_several(top, sampling, 0, 2)
    with pytest.raises(ValueError, match="without a finite maximum"):
        probabilities(top, [0], sampling)


def unused() -> Logits:
    raise AssertionError("the whole row is not needed")


def test_top_logits_of_another_temperature_are_refused_where_it_matters() -> None:
    top = Device(np.arange(9, dtype=np.float32)).top_logits(4, 0.5)
    with pytest.raises(ValueError, match=r"temperature 0\.7 .* not 0\.5"):
        choose(top, Sampling(1, 0.7, 0, 0.9), 0)
    with pytest.raises(ValueError, match=r"temperature 0\.7 .* not 0\.5"):
        probabilities(top, [8], Sampling(1, 0.7))
    with pytest.raises(ValueError, match=r"temperature 1\.0 .* not 0\.5"):
        probabilities(top, [8], Sampling(1, 0.0))
    row = Device(np.arange(9, dtype=np.float32)).row
    for sampling in (Sampling(1, 0.0, 0, 0.9), Sampling(1, 0.7), Sampling(1, 0.7, 3)):
        assert choose(top, sampling, 0) == choose(row, sampling, 0), "the sum is not used"


@pytest.mark.parametrize(
    ("n", "row", "asked"),
    [
        (1, [0, 2, 2, 1], 0),  # a single id is by contract the smallest of the tied ids
        (2, [0, 2, 2, 1], 1),  # a smaller tied id may lie outside
        (3, [0, 2, 2, 1], 0),
        (4, [2, 2, 2, 2], 0),  # nothing is outside
        (3, [2, 2, 2, 2], 1),
        (2, [0, 3, 2, 2], 0),
        (2, [2, -np.inf, -np.inf, -np.inf], 0),
    ],
)
def test_greedy_fetches_only_where_a_tie_may_lie_outside(n: int, row: list[float], asked: int) -> None:
    logits = np.array(row, np.float32)
    for seed in range(10):
        device = Device(logits, seed)
        assert choose(device.top_logits(n, 1.0), Sampling(), 0) == int(np.argmax(logits))
        assert device.asked == asked


@examples(150)
@given(rows, unfiltered, positions, shares, seeds)
def test_unfiltered_draw_fetches_where_noise_of_an_id_outside_could_win(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device, top = device_and_top_logits(row, share, sampling, seed)
    inside = np.isin(np.arange(len(row)), top.ids)
    all_noise = gumbel.gumbel(gumbel.row_key(sampling.seed, position), np.arange(len(row)))
    scores = row.astype(np.float64) / sampling.temperature + all_noise
    need = scores[inside].max() - float(top.logits[-1]) / sampling.temperature
    most = all_noise[~inside].max() if top.outside else -np.inf
    assume(not need < most + 1e-5 < need + 0.01)  # high words resolve no finer at the lower end
    expected = -np.expm1(-np.exp(-need)) * len(row)
    assume(expected < 3.9 or most > need)  # where four rivals are expected, it fetches without a search
    choose(top, sampling, position)
    assert device.asked == (most > need)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_top_k_within_the_top_logits_never_fetches(top_p: float) -> None:
    row = logits_of("normal", 5000, 1)
    sampling = Sampling(3, 2.0, 40, top_p)
    for position in range(200):
        device = Device(row)
        top = device.top_logits(64, 2.0)
        top.log_sum = 1e6  # the sum is not used here
        assert choose(top, sampling, position) == choose(row, sampling, position)
        assert not device.asked


@examples(150)
@given(
    st.builds(logits_of, st.sampled_from(["normal", "ties", "peaked"]), st.integers(1, 3000), seeds),
    st.builds(Sampling, seeds, st.floats(0.3, 3.0), st.just(0), st.floats(0.05, 0.99)),
    positions,
    shares,
    seeds,
)
def test_nucleus_within_the_top_logits_never_fetches(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    ordered = np.sort(row.astype(np.float64))[::-1] / sampling.temperature
    device, top = device_and_top_logits(row, share, sampling, seed)
    spare = (full_logits.nucleus_size(ordered, min(1.0, sampling.top_p + off)) for off in (-1e-3, 1e-3))
    assume(len(set(spare)) == 1 and full_logits.nucleus_size(ordered, sampling.top_p) <= top.sure)
    choose(top, sampling, position)
    assert not device.asked
