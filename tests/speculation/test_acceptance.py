"""Which drafts stand."""

import numpy as np
import pytest

from speculation.acceptance import Strategy, common_prefix, effective_sampling, judge
from speculation.head import head_of
from speculation.sampling import Logits, Sampling, choose

GREEDY = Sampling()
END = 7


def saying(*tokens: int) -> list[Logits]:
    """Rows of logits whose argmax are these tokens."""
    return [np.eye(8, dtype=np.float32)[token] for token in tokens]


@pytest.mark.parametrize(
    ("drafts", "target", "committed"),
    [
        ([], [3], [3]),  # plain decoding
        ([3, 4], [3, 4, 5], [3, 4, 5]),  # all stand, and the row after the last gives one more
        ([3, 9, 5], [3, 4, 5, 6], [3, 4]),  # the first that falls is replaced, the rest forgotten
        ([9, 4], [3, 4, 5], [3]),
        ([3, END, 1], [3, END, 1, 2], [3, END]),  # nothing stands behind an end
        ([3, 1, 1], [3, END, 1, 2], [3, END]),
        ([END], [END, 4], [END]),
        ([END], [3, 4], [3]),  # an end that the target does not say is a draft like any other
    ],
)
def test_judging(drafts: list[int], target: list[int], committed: list[int]) -> None:
    assert judge(drafts, saying(*target), GREEDY, 10, {END}) == committed


def test_rows_behind_the_first_draft_that_falls_are_not_looked_at() -> None:
    unusable = np.full(8, np.nan, dtype=np.float32)
    assert judge([2, 2], [*saying(1), unusable, unusable], GREEDY, 0, {END}) == [1]


def test_each_row_is_drawn_at_its_own_position() -> None:
    sampling = Sampling(seed=3, temperature=1.0)
    flat = np.zeros((6, 64), dtype=np.float32)
    expected = [choose(flat[0], sampling, position) for position in range(20, 26)]
    assert len(set(expected)) > 1
    assert judge(expected[:5], flat, sampling, 20, set()) == expected
    assert judge(expected[:5], flat, sampling, 21, set()) != expected


def test_heads_are_judged_as_their_rows_are() -> None:
    sampling = Sampling(seed=3, temperature=1.0, top_p=0.9)
    rows = list(np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32))
    heads = [head_of(row, 8, 1.0) for row in rows]
    drafts = judge([-1], rows[:1], sampling, 20, set())
    while len(drafts) < 6:
        drafts = judge([*drafts, -1], rows[: len(drafts) + 1], sampling, 20, set())
    assert judge(drafts[:5], heads, sampling, 20, set()) == drafts
    assert judge(drafts[:5], [*rows[:2], *heads[2:]], sampling, 20, set()) == drafts
    assert judge([drafts[0], -1, 0, 0, 0], heads, sampling, 20, set()) == drafts[:2]


def test_the_deterministic_strategy_takes_the_argmax_and_keeps_the_rest() -> None:
    sampling = Sampling(seed=3, temperature=1.0, top_k=5, top_p=0.5)
    assert effective_sampling(Strategy.COUPLED, sampling) == sampling
    assert effective_sampling(Strategy.DETERMINISTIC, sampling) == Sampling(3, 0.0, 5, 0.5)


@pytest.mark.parametrize(
    ("left", "right", "length"), [([], [], 0), ([1], [], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 9, 3], 1)]
)
def test_common_prefix(left: list[int], right: list[int], length: int) -> None:
    assert common_prefix(left, right) == common_prefix(right, left) == length
