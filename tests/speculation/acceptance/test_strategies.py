"""Which drafts stand."""

from collections.abc import Sequence, Set
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculation.acceptance.strategies import (
    DRAFTER_INVARIANT,
    Rule,
    Ruling,
    Strategy,
    common_prefix,
    effective_sampling,
)
from speculation.acceptance.strategies import judge as judge_by_rule
from speculation.sampling.distribution import probabilities
from speculation.sampling.sampling import Logits, Row, Sampling, choose
from speculation.sampling.top_logits import top_logits_of
from tests.speculation.rows import Device, samplings, small_rows

GREEDY = Sampling()
END = 7


def judge(
    drafts: Sequence[int], rows: Sequence[Row] | Logits, sampling: Sampling, position: int, ends: Set[int]
) -> list[int]:
    """The tokens, by the default rule; those in front of the last are there because drafts stand."""
    rulings = judge_by_rule(drafts, rows, Rule(Strategy.COUPLED, sampling), position, ends)
    tokens = [each.token for each in rulings]
    assert [each.stands for each in rulings] == [token == draft for token, draft in zip_longest(tokens, drafts)][
        : len(tokens)
    ]
    return tokens


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
    heads = [top_logits_of(row, 8, 1.0) for row in rows]
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


def test_greedy_takes_the_argmax_and_no_draft_even_where_they_are_equal() -> None:
    rule = Rule(Strategy.GREEDY, effective_sampling(Strategy.GREEDY, Sampling(3, 1.0)))
    assert judge_by_rule([3, 4], saying(3, 4, 5), rule, 10, {END}) == [Ruling(3, False)]
    assert judge_by_rule([6], saying(3, 4), rule, 10, {END}) == [Ruling(3, False)]
    assert judge_by_rule([], saying(3), rule, 10, {END}) == [Ruling(3, False)]


def test_whose_text_is_the_same_whatever_is_drafted() -> None:
    assert {Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY} == DRAFTER_INVARIANT
    assert [strategy for strategy in Strategy if strategy.draws] == [Strategy.PROBABILISTIC]


def plain_threshold(drafts: list[int], rows: list[Logits], sampling: Sampling, threshold: float) -> list[int]:
    """The rule in the plainest words."""
    tokens = []
    for at, row in enumerate(rows):
        if at < len(drafts):
            mass = np.exp(row.astype(np.float64) - float(row.max()))
            p = mass / mass.sum() if sampling.greedy else probabilities(row, sampling)
            if p[drafts[at]] > threshold:
                tokens.append(drafts[at])
                continue
            if (token := choose(row, sampling, 30 + at)) == drafts[at]:
                tokens.append(token)
                continue
        return [*tokens, choose(row, sampling, 30 + at)]
    raise AssertionError("the last row has no draft")


@given(
    st.lists(small_rows.filter(lambda row: len(row) > 2), min_size=1, max_size=4),
    samplings | st.just(GREEDY),
    st.sampled_from([0.0, 0.05, 0.3, 0.9]),
    st.data(),
)
def test_the_threshold_is_on_what_the_target_gives_after_its_filters(
    rows: list[Logits], sampling: Sampling, threshold: float, data: st.DataObject
) -> None:
    drafts = [data.draw(st.integers(0, len(row) - 1)) for row in rows[:-1]]
    rule = Rule(Strategy.THRESHOLD, sampling, threshold)
    expected = plain_threshold(drafts, rows, sampling, threshold)
    assert [each.token for each in judge_by_rule(drafts, rows, rule, 30, set())] == expected
    heads = [Device(row).head(1, sampling.softmax_temperature) for row in rows]
    assert [each.token for each in judge_by_rule(drafts, heads, rule, 30, set())] == expected


def test_a_draft_behind_an_accepted_end_is_not_judged() -> None:
    flat = np.zeros((3, 8), np.float32)
    rule = Rule(Strategy.THRESHOLD, Sampling(0, 1.0), 0.1)
    assert [each[:2] for each in judge_by_rule([END, 1], flat, rule, 0, {END})] == [(END, True)]
    rule = Rule(Strategy.PROBABILISTIC, Sampling(0, 1.0))
    rulings = judge_by_rule([END, 1], flat, rule, 0, {END}, [{END: 0.05, 1: 0.95}, {1: 1.0}])
    assert [each[:2] for each in rulings] == [(END, True)]


@pytest.mark.parametrize(
    ("left", "right", "length"), [([], [], 0), ([1], [], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 9, 3], 1)]
)
def test_common_prefix(left: list[int], right: list[int], length: int) -> None:
    assert common_prefix(left, right) == common_prefix(right, left) == length
