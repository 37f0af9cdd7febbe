"""The contents of TopLogits, in whatever order the device gives them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.sampling.sampling import Logits, Sampling, choose_two
from specpair.speculation.sampling.top_logits import TopLogits, top_logits_of
from tests.specpair.speculation.rows import Device, rows, small_rows


def top_logits(ids: list[int], logits: list[float], size: int = 100) -> TopLogits:
    return TopLogits(np.array(ids), np.array(logits, np.float32), size, 1.0, 5.0, lambda: np.zeros(size, np.float32))


def test_top_logits_are_sorted_from_any_order() -> None:
    one = top_logits([7, 3, 9, 1, 4], [1.0, 2.0, 2.0, -1.0, 0.0])
    assert one.ids.tolist() == [3, 9, 7, 4, 1]
    assert one.logits.tolist() == [2.0, 2.0, 1.0, 0.0, -1.0]
    assert one.ids.dtype == np.int64
    assert top_logits([7, 3], [0.0, -0.0]).ids.tolist() == [3, 7], "the two zeros are equal"


@pytest.mark.parametrize(
    ("ids", "logits", "size", "sure", "outside"),
    [
        ([1, 2, 3], [3, 2, 1], 100, 2, 97),  # an id outside may tie with the last
        ([1, 2, 3], [3, 1, 1], 100, 1, 97),
        ([1, 2, 3], [1, 1, 1], 100, 0, 97),
        ([1], [1], 100, 1, 99),  # by contract the smallest of the tied ids
        ([0, 1, 2], [1, 1, 1], 3, 3, 0),
        ([1, 2, 3], [1, 1, -np.inf], 100, 2, 0),  # all ids outside are at -inf, too
    ],
)
def test_sure_and_outside_count_ids(ids: list[int], logits: list[float], size: int, sure: int, outside: int) -> None:
    one = top_logits(ids, logits, size)
    assert (one.sure, one.outside) == (sure, outside)


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


def test_read_only_whole_row_is_copied() -> None:
    row = np.array([1.0, 3.0, 2.0], np.float32)
    row.flags.writeable = False
    assert choose_two(TopLogits(np.array([1]), row[1:2], 3, 1.0, 4.0, lambda: row), Sampling(), 0) == (1, 2)


def test_holds_tells_which_ids_are_included() -> None:
    one = top_logits([50, 3, 9], [1.0, 2.0, 3.0])
    assert one.holds(np.array([0, 3, 4, 9, 50, 51, 99])).tolist() == [False, True, False, True, True, False, False]
    assert one.without(0).holds(np.array([9])).all(), "a masked id is included, too"


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
