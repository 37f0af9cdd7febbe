"""Deciding on the head of a row gives what deciding on the whole row gives, and seldom asks for it."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from speculation import noise, nucleus
from speculation.head import Head
from speculation.sampling import Logits, Sampling, choose, choose_reference, choose_two, probability
from tests.speculation.rows import SHAPES, Device, logits_of, rows, samplings, small_rows, temperatures, top_ps

few_values = st.lists(st.sampled_from([-np.inf, -3.0, 0.0, -0.0, 0.5, 1.0, 9.0]), min_size=1, max_size=12).filter(
    lambda row: max(row) > -np.inf
)
tied_rows = few_values.map(lambda row: np.array(row, np.float32))
any_rows = rows | small_rows | tied_rows
greedy = st.builds(Sampling, st.just(1), st.floats(0, 9e-4), st.integers(0, 9), top_ps)
small_filters = st.builds(Sampling, st.integers(0, 2**53 - 1), temperatures, st.integers(0, 13), top_ps)
unfiltered = st.builds(Sampling, st.integers(0, 2**53 - 1), temperatures)
any_samplings = samplings | small_filters | unfiltered | greedy
positions = st.integers(0, 2**20)
seeds = st.integers(0, 2**32 - 1)
shares = st.sampled_from([0.0, 0.02, 0.2, 0.5, 0.8, 1.0]) | st.floats(0.0, 1.0)


def part(row: Logits, share: float) -> int:
    """How many ids a head has that is so much of the row."""
    return max(1, round(share * len(row)))


@settings(max_examples=1500)
@given(any_rows, any_samplings, positions, shares, seeds)
def test_the_head_gives_the_ids_of_the_definition(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device = Device(row, seed)
    head = device.head(part(row, share), sampling.softmax_temperature)
    assert choose(head, sampling, position) == choose_reference(row, sampling, position)
    assert choose(head, sampling, position) == choose(row, sampling, position)
    assert device.asked <= 1, "what was fetched is kept"


@settings(max_examples=1500)
@given(any_rows, any_samplings, positions, shares, seeds)
def test_the_second_choice_is_that_of_the_whole_row(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device = Device(row, seed)
    head = device.head(part(row, share), sampling.softmax_temperature)
    assert choose_two(head, sampling, position) == choose_two(row, sampling, position)
    assert device.asked <= 1
    assert choose(head, sampling, position) == choose_reference(row, sampling, position), "the head is as it was"


@settings(max_examples=500)
@given(any_rows, unfiltered, positions, shares, seeds)
def test_the_probability_is_that_of_the_whole_row(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int
) -> None:
    device = Device(row, seed)
    head = device.head(part(row, share), sampling.softmax_temperature)
    token = choose(head, sampling, position)
    scaled = row.astype(np.float64) / sampling.softmax_temperature
    exact = float(np.exp(scaled[token] - scaled.max()) / np.exp(scaled - scaled.max()).sum())
    # float32 keeps seven digits of what is scaled, and an error of a logit is a relative one of its probability
    tolerance = 1e-5 + 4e-7 * float(np.abs(scaled[np.isfinite(scaled)]).max())
    assume(tolerance < 0.1)
    assert probability(head, token, sampling) == pytest.approx(exact, rel=tolerance)
    assert probability(row, token, sampling) == pytest.approx(exact, rel=tolerance)
    assert device.asked <= 1


@settings(max_examples=1000)
@given(any_rows, any_samplings, positions, shares, seeds, st.floats(-0.99, 0.99))
def test_a_sum_that_is_a_little_off_does_not_matter(
    row: Logits, sampling: Sampling, position: int, share: float, seed: int, off: float
) -> None:
    head = off_by(Device(row, seed).head(part(row, share), sampling.softmax_temperature), off)
    assert choose_two(head, sampling, position) == choose_two(row, sampling, position)


def off_by(head: Head, part: float) -> Head:
    """The head with a sum that is off by a part of what is allowed for."""
    log_sum = head.log_sum + float(np.log1p(part * head.doubt)) if head.doubt < 1.0 else head.log_sum
    return Head(head.ids, head.logits, head.size, head.temperature, log_sum, head.full)


@pytest.mark.parametrize("off", [-0.9, 0.9])
def test_a_nucleus_that_ends_on_the_spot_is_left_to_the_whole_row(off: float) -> None:
    """Three quarters are the two likeliest by a hair, or by a hair not; only the whole row tells."""
    row = np.log(np.array([0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125])).astype(np.float32)
    sampling = Sampling(1, 1.0, top_p=0.75)
    asked = 0
    for position in range(100):
        device = Device(row)
        token = choose(off_by(device.head(4, 1.0), off), sampling, position)
        assert token == choose_reference(row, sampling, position)
        asked += device.asked
    assert 0 < asked < 60, "where it is the third that wins, if it may"


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
    device = Device(row, seed)
    head = device.head(part(row, share), sampling.temperature)
    inside = np.isin(np.arange(len(row)), head.ids)
    all_noise = noise.gumbel(noise.row_key(sampling.seed, position), np.arange(len(row)))
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
    all_noise = noise.gumbel(noise.row_key(seed, 0), np.arange(5000))
    best = int(all_noise[1:].argmax()) + 1
    even = temperature * (all_noise[best] - all_noise[0])
    assume(even > 0.01 and 8.5 < all_noise[best] < 14.0)  # below it does not look, above words are too coarse
    for off, winner in ((-hair, best), (hair, 0)):
        row = np.zeros(5000, np.float32)
        row[0] = even + temperature * off
        device = Device(row)
        head = Head(np.array([0, 1 + best % 4999]), row[[0, 1]], 5000, temperature, 9.0, device.full)
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
    device = Device(row, seed)
    head = device.head(part(row, share), sampling.temperature)
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
        all_noise = noise.gumbel(noise.row_key(2, position), np.arange(600))
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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5])
@pytest.mark.parametrize("top_k", [0, 40, 2000])
def test_a_vocabulary_of_152_000(top_k: int, top_p: float, shape: str) -> None:
    row = logits_of(shape, 152_064, 7)
    for position in range(3):
        sampling = Sampling(4, 0.8, top_k, top_p)
        head = Device(row, position).head(1024, 0.8)
        assert choose_two(head, sampling, position) == choose_two(row, sampling, position)


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
            head = Head(source.ids, source.logits, source.size, temperature, source.log_sum, source.full)
            choose(head, Sampling(4, temperature), position)
        asked[temperature] = device.asked
    assert asked[0.7] <= 4
    assert 10 <= asked[1.0] <= 80


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1, 1.0), Sampling(1, 1.0, 2), Sampling(1, 1.0, 0, 0.5)])
@pytest.mark.parametrize(
    ("logits", "log_sum"),
    [
        ([2.0, np.nan], np.nan),
        ([np.nan, 2.0], 3.0),
        ([np.inf, 2.0], np.inf),
        ([np.inf, 2.0], 3.0),
        ([2.0, 1.0], np.nan),  # it lies outside
        ([-np.inf, -np.inf], -np.inf),
        ([-np.inf], -np.inf),
        ([np.nan], np.nan),
        ([1.0], np.nan),
    ],
)
def test_heads_that_say_nothing_are_refused(logits: list[float], log_sum: float, sampling: Sampling) -> None:
    head = Head(np.arange(len(logits)), np.array(logits, np.float32), 9, 1.0, log_sum, unused)
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose(head, sampling, 0)
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose_two(head, sampling, 0)
    with pytest.raises(ValueError, match="without a finite maximum"):
        probability(head, 0, sampling)


def unused() -> Logits:
    raise AssertionError("the whole row is not needed")


def test_a_head_of_another_temperature_is_refused_where_that_would_mislead() -> None:
    head = Device(np.arange(9, dtype=np.float32)).head(4, 0.5)
    with pytest.raises(ValueError, match=r"temperature 0\.7 .* temperature 0\.5"):
        choose(head, Sampling(1, 0.7, 0, 0.9), 0)
    with pytest.raises(ValueError, match=r"temperature 0\.7 .* temperature 0\.5"):
        probability(head, 8, Sampling(1, 0.7))
    with pytest.raises(ValueError, match=r"temperature 1\.0 .* temperature 0\.5"):
        probability(head, 8, Sampling(1, 0.0))
    row = Device(np.arange(9, dtype=np.float32)).row
    for sampling in (Sampling(1, 0.0, 0, 0.9), Sampling(1, 0.7), Sampling(1, 0.7, 3)):
        assert choose(head, sampling, 0) == choose(row, sampling, 0), "the sum has no part in it"
