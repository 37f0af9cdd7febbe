"""TopLogits fetch the whole row only where the choice needs it."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specpair.speculation.sampling import full_logits, gumbel
from specpair.speculation.sampling.sampling import Logits, Sampling, choose, choose_reference, choose_two
from specpair.speculation.sampling.top_logits import TopLogits
from tests.examples import examples
from tests.specpair.speculation.rows import (
    Device,
    device_and_top_logits,
    logits_of,
    positions,
    rows,
    seeds,
    shares,
    unfiltered,
)


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


@given(seeds, st.floats(1e-3, 5e-3), st.sampled_from([0.5, 1.0, 4.0]))
def test_fetch_depends_on_a_tiny_margin(seed: int, hair: float, temperature: float) -> None:
    """All ids but one are equal. That one wins or loses by a tiny margin against the best of the others."""
    all_noise = gumbel.gumbel(gumbel.row_key(seed, 0), np.arange(5000))
    best = int(all_noise[1:].argmax()) + 1
    even = temperature * (all_noise[best] - all_noise[0])
    assume(even > 0.01 and 8.5 < all_noise[best] < 14.0)  # below, no search is made; above, words are too coarse
    for off, winner in ((-hair, best), (hair, 0)):
        row = np.zeros(5000, np.float32)
        row[0] = even + temperature * off
        device = Device(row)
        top = TopLogits(np.array([0, 1 + best % 4999]), row[[0, 1]], 5000, temperature, 9.0, device.full)
        assert choose(top, Sampling(seed, temperature), 0) == winner
        assert device.asked == (winner == best)


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


def test_top_k_fetches_where_ids_outside_tie_with_the_last_kept() -> None:
    row = np.zeros(100, np.float32)
    row[50] = 4.0
    asked, drawn = [], []
    for position in range(200):
        device = Device(row, position)
        drawn.append(choose(device.top_logits(10, 1.0), Sampling(1, 1.0, 3), position))
        asked.append(device.asked)
    assert drawn == [choose_reference(row, Sampling(1, 1.0, 3), position) for position in range(200)]
    assert set(drawn) == {0, 1, 50}
    assert all(asked[at] for at in range(200) if drawn[at] != 50)
    device = Device(row)
    assert choose(device.top_logits(10, 0.05), Sampling(1, 0.05, 3), 0) == 50
    assert not device.asked, "id 50 is certain to be kept, and no other can beat it"


def test_nucleus_is_that_of_top_k_also_where_its_last_ids_are_tied() -> None:
    row = np.array([1.0, 0.5, 0.5] + [0.0] * 30, np.float32)
    sampling = Sampling(1, 1.0, 4, 0.5)  # the nucleus of the four greatest has two ids, that of all eight three
    for position in range(100):
        device = Device(row, position)
        assert choose(device.top_logits(8, 1.0), sampling, position) == choose_reference(row, sampling, position)
        assert not device.asked


def test_top_k_beyond_the_top_logits_fetches_only_where_the_winner_may_lie_outside() -> None:
    row = logits_of("normal", 5000, 1)
    row[:8] += 20
    asked = 0
    for position in range(100):
        device = Device(row)
        sampling = Sampling(3, 1.0, 1000, 0.99)
        assert choose(device.top_logits(64, 1.0), sampling, position) == choose_reference(row, sampling, position)
        asked += device.asked
    assert asked <= 2


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


def test_nucleus_beyond_the_top_logits_fetches_only_where_the_winner_may_lie_outside() -> None:
    row = np.zeros(1000, np.float32)
    sampling = Sampling(1, 1.0, top_p=0.5)
    device = Device(row)
    choose(device.top_logits(10, 1.0), sampling, 0)
    assert device.asked
    row[123] = 15.0
    device = Device(row)
    assert choose(device.top_logits(10, 1.0), Sampling(1, 1.0, top_p=0.9999), 0) == 123
    assert not device.asked


def test_only_the_noise_outside_counts_where_the_nucleus_holds_all_top_logits() -> None:
    row = np.linspace(6.0, 0.0, 600, dtype=np.float32)  # the first 200 have 0.87 of the mass
    decided = 0
    for position in range(300):
        sampling = Sampling(2, 1.0, 0, 0.95)
        device = Device(row)
        assert choose(device.top_logits(200, 1.0), sampling, position) == choose_reference(row, sampling, position)
        all_noise = gumbel.gumbel(gumbel.row_key(2, position), np.arange(600))
        scores = row[:200] + all_noise[:200]
        if scores.argmax() < 199 and scores.max() - row[199] > all_noise[200:].max():
            decided += 1
            assert not device.asked
    assert decided > 100


@pytest.mark.parametrize("temperature", [0.5, 5.0, 50.0])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_masked_ids_are_never_fetched(top_p: float, temperature: float) -> None:
    row = np.full(5000, -np.inf, np.float32)
    row[::500] = np.arange(10)
    for position in range(50):
        device = Device(row)
        sampling = Sampling(2, temperature, 0, top_p)
        assert choose(device.top_logits(64, temperature), sampling, position) == choose_reference(
            row, sampling, position
        )
        assert not device.asked


def test_second_choice_behind_a_near_certain_first_needs_no_fetch() -> None:
    """The rest of the sum is all rounding, but the bound by the smallest top logit suffices."""
    row = np.linspace(0.0, -300.0, 1000, dtype=np.float32)
    row[0] = 40.0
    for position in range(100):
        device = Device(row)
        sampling = Sampling(2, 1.0, 0, 0.9)
        assert choose_two(device.top_logits(64, 1.0), sampling, position) == choose_two(row, sampling, position)
        assert not device.asked


def test_rows_are_fetched_less_often_at_lower_temperatures() -> None:
    """As in rows of language models, some hundred logits rise above a bulk of 152,000."""
    random = np.random.default_rng(0)
    row = 2 * random.standard_normal(152_064).astype(np.float32)
    row[random.choice(len(row), 200, replace=False)] += np.linspace(5, 14, 200, dtype=np.float32)
    asked = {}
    for temperature in (0.7, 1.0):
        device = Device(row)
        source = device.top_logits(1024, temperature)
        for position in range(200):
            top = TopLogits(source.ids, source.logits, source.size, temperature, source.log_sum, source.full)
            choose(top, Sampling(4, temperature), position)
        asked[temperature] = device.asked
    assert asked[0.7] <= 4
    assert 10 <= asked[1.0] <= 80
