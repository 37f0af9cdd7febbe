"""The head of a row asks for the whole row where it must, and where it need not it does not."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from speculation.sampling import gumbel, nucleus
from speculation.sampling.sampling import Logits, Sampling, choose, choose_reference, choose_two
from speculation.sampling.top_logits import TopLogits
from tests.speculation.rows import Device, logits_of, positions, rows, seeds, shares, shown, unfiltered


@pytest.mark.parametrize(
    ("n", "row", "asked"),
    [
        (1, [0, 2, 2, 1], 0),  # one id alone is the smallest of its like
        (2, [0, 2, 2, 1], 1),  # a smaller one may lie outside
        (3, [0, 2, 2, 1], 0),
        (4, [2, 2, 2, 2], 0),  # nothing is outside
        (3, [2, 2, 2, 2], 1),
        (2, [0, 3, 2, 2], 0),
        (2, [2, -np.inf, -np.inf, -np.inf], 0),
    ],
)
def test_when_greedy_asks(n: int, row: list[float], asked: int) -> None:
    logits = np.array(row, np.float32)
    for seed in range(10):
        device = Device(logits, seed)
        assert choose(device.head(n, 1.0), Sampling(), 0) == int(np.argmax(logits))
        assert device.asked == asked


@settings(max_examples=500)
@given(rows, unfiltered, positions, shares, seeds)
def test_without_filters_it_asks_when_the_noise_of_an_id_outside_could_win(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device, head = shown(row, share, sampling, seed)
    inside = np.isin(np.arange(len(row)), head.ids)
    all_noise = gumbel.gumbel(gumbel.row_key(sampling.seed, position), np.arange(len(row)))
    scores = row.astype(np.float64) / sampling.temperature + all_noise
    need = scores[inside].max() - float(head.logits[-1]) / sampling.temperature
    most = all_noise[~inside].max() if head.outside else -np.inf
    assume(not need < most + 1e-5 < need + 0.01)  # words are told apart no finer at the lower end
    expected = -np.expm1(-np.exp(-need)) * len(row)
    assume(expected < 3.9 or most > need)  # where four are expected, it does not look whether there is one
    choose(head, sampling, position)
    assert device.asked == (most > need)


@given(seeds, st.floats(1e-3, 5e-3), st.sampled_from([0.5, 1.0, 4.0]))
def test_a_hair_decides_whether_it_asks(seed: int, hair: float, temperature: float) -> None:
    """All ids are equal but one, which is made to win or lose by a hair against the best of the others."""
    all_noise = gumbel.gumbel(gumbel.row_key(seed, 0), np.arange(5000))
    best = int(all_noise[1:].argmax()) + 1
    even = temperature * (all_noise[best] - all_noise[0])
    assume(even > 0.01 and 8.5 < all_noise[best] < 14.0)  # below it does not look, above words are too coarse
    for off, winner in ((-hair, best), (hair, 0)):
        row = np.zeros(5000, np.float32)
        row[0] = even + temperature * off
        device = Device(row)
        head = TopLogits(np.array([0, 1 + best % 4999]), row[[0, 1]], 5000, temperature, 9.0, device.full)
        assert choose(head, Sampling(seed, temperature), 0) == winner
        assert device.asked == (winner == best)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_top_k_in_the_head_never_asks(top_p: float) -> None:
    row = logits_of("normal", 5000, 1)
    sampling = Sampling(3, 2.0, 40, top_p)
    for position in range(200):
        device = Device(row)
        head = device.head(64, 2.0)
        head.log_sum = 1e6  # of no use here
        assert choose(head, sampling, position) == choose(row, sampling, position)
        assert not device.asked


def test_top_k_asks_where_ids_outside_tie_with_the_last_kept() -> None:
    row = np.zeros(100, np.float32)
    row[50] = 4.0
    asked, drawn = [], []
    for position in range(200):
        device = Device(row, position)
        drawn.append(choose(device.head(10, 1.0), Sampling(1, 1.0, 3), position))
        asked.append(device.asked)
    assert drawn == [choose_reference(row, Sampling(1, 1.0, 3), position) for position in range(200)]
    assert set(drawn) == {0, 1, 50}
    assert all(asked[at] for at in range(200) if drawn[at] != 50)
    device = Device(row)
    assert choose(device.head(10, 0.05), Sampling(1, 0.05, 3), 0) == 50
    assert not device.asked, "the first of them is kept in any case, and out of the reach of all others"


def test_the_nucleus_is_that_of_top_k_also_where_its_last_are_tied_with_more() -> None:
    row = np.array([1.0, 0.5, 0.5] + [0.0] * 30, np.float32)
    sampling = Sampling(1, 1.0, 4, 0.5)  # the nucleus of the four greatest is two, that of the eight in the head three
    for position in range(100):
        device = Device(row, position)
        assert choose(device.head(8, 1.0), sampling, position) == choose_reference(row, sampling, position)
        assert not device.asked


def test_a_top_k_beyond_the_head_asks_only_where_the_winner_may_lie_there() -> None:
    row = logits_of("normal", 5000, 1)
    row[:8] += 20
    asked = 0
    for position in range(100):
        device = Device(row)
        sampling = Sampling(3, 1.0, 1000, 0.99)
        assert choose(device.head(64, 1.0), sampling, position) == choose_reference(row, sampling, position)
        asked += device.asked
    assert asked <= 2


@settings(max_examples=500)
@given(
    st.builds(logits_of, st.sampled_from(["normal", "ties", "peaked"]), st.integers(1, 3000), seeds),
    st.builds(Sampling, seeds, st.floats(0.3, 3.0), st.just(0), st.floats(0.05, 0.99)),
    positions,
    shares,
    seeds,
)
def test_a_nucleus_within_the_head_never_asks(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    ordered = np.sort(row.astype(np.float64))[::-1] / sampling.temperature
    device, head = shown(row, share, sampling, seed)
    spare = (nucleus.nucleus_size(ordered, min(1.0, sampling.top_p + off)) for off in (-1e-3, 1e-3))
    assume(len(set(spare)) == 1 and nucleus.nucleus_size(ordered, sampling.top_p) <= head.sure)
    choose(head, sampling, position)
    assert not device.asked


def test_a_nucleus_beyond_the_head_asks_only_where_the_winner_may_lie_outside() -> None:
    row = np.zeros(1000, np.float32)
    sampling = Sampling(1, 1.0, top_p=0.5)
    device = Device(row)
    choose(device.head(10, 1.0), sampling, 0)
    assert device.asked
    row[123] = 15.0
    device = Device(row)
    assert choose(device.head(10, 1.0), Sampling(1, 1.0, top_p=0.9999), 0) == 123
    assert not device.asked


def test_where_the_sum_says_that_the_nucleus_holds_the_head_only_the_noise_outside_counts() -> None:
    row = np.linspace(6.0, 0.0, 600, dtype=np.float32)  # the first 200 weigh 0.87 of it
    decided = 0
    for position in range(300):
        sampling = Sampling(2, 1.0, 0, 0.95)
        device = Device(row)
        assert choose(device.head(200, 1.0), sampling, position) == choose_reference(row, sampling, position)
        all_noise = gumbel.gumbel(gumbel.row_key(2, position), np.arange(600))
        scores = row[:200] + all_noise[:200]
        if scores.argmax() < 199 and scores.max() - row[199] > all_noise[200:].max():
            decided += 1
            assert not device.asked
    assert decided > 100


@pytest.mark.parametrize("temperature", [0.5, 5.0, 50.0])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_what_is_masked_is_never_asked_for(top_p: float, temperature: float) -> None:
    row = np.full(5000, -np.inf, np.float32)
    row[::500] = np.arange(10)
    for position in range(50):
        device = Device(row)
        sampling = Sampling(2, temperature, 0, top_p)
        assert choose(device.head(64, temperature), sampling, position) == choose_reference(row, sampling, position)
        assert not device.asked


def test_a_second_choice_behind_one_that_is_all_but_certain_is_still_the_heads() -> None:
    """The sum says nothing of what is left; that ids outside weigh no more than the smallest inside suffices."""
    row = np.linspace(0.0, -300.0, 1000, dtype=np.float32)
    row[0] = 40.0
    for position in range(100):
        device = Device(row)
        sampling = Sampling(2, 1.0, 0, 0.9)
        assert choose_two(device.head(64, 1.0), sampling, position) == choose_two(row, sampling, position)
        assert not device.asked


def test_the_further_a_head_stands_out_the_seldomer_the_row_is_asked_for() -> None:
    """As in a language model's rows, some hundred ids stand out of a bulk of 152,000."""
    random = np.random.default_rng(0)
    row = 2 * random.standard_normal(152_064).astype(np.float32)
    row[random.choice(len(row), 200, replace=False)] += np.linspace(5, 14, 200, dtype=np.float32)
    asked = {}
    for temperature in (0.7, 1.0):
        device = Device(row)
        source = device.head(1024, temperature)
        for position in range(200):
            head = TopLogits(source.ids, source.logits, source.size, temperature, source.log_sum, source.full)
            choose(head, Sampling(4, temperature), position)
        asked[temperature] = device.asked
    assert asked[0.7] <= 4
    assert 10 <= asked[1.0] <= 80
