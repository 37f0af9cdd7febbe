"""Which draft tokens each strategy accepts."""

from collections.abc import Sequence, Set
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.acceptance.judge import Rule, Ruling, decide
from specpair.speculation.acceptance.judge import judge as judge_by_rule
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy, common_prefix, effective_sampling
from specpair.speculation.draft import chain
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.sampling import Logits, Row, Sampling, choose
from specpair.speculation.sampling.top_logits import top_logits_of
from tests.specpair.speculation.rows import Device, samplings, small_rows

GREEDY = Sampling()
END = 7


def judge(
    drafts: Sequence[int], rows: Sequence[Row] | Logits, sampling: Sampling, position: int, ends: Set[int]
) -> list[int]:
    """The tokens under the default rule; all before the last are accepted draft tokens."""
    rulings = judge_by_rule(chain(drafts), rows, Rule(Strategy.COUPLED, sampling), position, ends)
    tokens = [each.token for each in rulings]
    assert [each.accepted for each in rulings] == [token == draft for token, draft in zip_longest(tokens, drafts)][
        : len(tokens)
    ]
    return tokens


def saying(*tokens: int) -> list[Logits]:
    """Rows of logits with these tokens as argmax."""
    return [np.eye(8, dtype=np.float32)[token] for token in tokens]


@pytest.mark.parametrize(
    ("drafts", "target", "committed"),
    [
        ([], [3], [3]),  # plain decoding
        ([3, 4], [3, 4, 5], [3, 4, 5]),  # all accepted, then the bonus token
        ([3, 9, 5], [3, 4, 5, 6], [3, 4]),  # recovered token for the first rejected, the rest ignored
        ([9, 4], [3, 4, 5], [3]),
        ([3, END, 1], [3, END, 1, 2], [3, END]),  # nothing is accepted behind an end token
        ([3, 1, 1], [3, END, 1, 2], [3, END]),
        ([END], [END, 4], [END]),
        ([END], [3, 4], [3]),  # an end token may be rejected like any other
    ],
)
def test_judge_commits_accepted_drafts_and_one_more(drafts: list[int], target: list[int], committed: list[int]) -> None:
    assert judge(drafts, saying(*target), GREEDY, 10, {END}) == committed


def test_rows_behind_the_first_rejected_draft_are_ignored() -> None:
    unusable = np.full(8, np.nan, dtype=np.float32)
    assert judge([2, 2], [*saying(1), unusable, unusable], GREEDY, 0, {END}) == [1]


def test_each_row_is_drawn_at_its_position() -> None:
    sampling = Sampling(seed=3, temperature=1.0)
    flat = np.zeros((6, 64), dtype=np.float32)
    expected = [choose(flat[0], sampling, position) for position in range(20, 26)]
    assert len(set(expected)) > 1
    assert judge(expected[:5], flat, sampling, 20, set()) == expected
    assert judge(expected[:5], flat, sampling, 21, set()) != expected


def test_top_logits_are_judged_like_their_rows() -> None:
    sampling = Sampling(seed=3, temperature=1.0, top_p=0.9)
    rows = list(np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32))
    tops = [top_logits_of(row, 8, 1.0) for row in rows]
    drafts = judge([-1], rows[:1], sampling, 20, set())
    while len(drafts) < 6:
        drafts = judge([*drafts, -1], rows[: len(drafts) + 1], sampling, 20, set())
    assert judge(drafts[:5], tops, sampling, 20, set()) == drafts
    assert judge(drafts[:5], [*rows[:2], *tops[2:]], sampling, 20, set()) == drafts
    assert judge([drafts[0], -1, 0, 0, 0], tops, sampling, 20, set()) == drafts[:2]


def test_deterministic_sets_temperature_0_and_keeps_the_other_settings() -> None:
    sampling = Sampling(seed=3, temperature=1.0, top_k=5, top_p=0.5)
    assert effective_sampling(Strategy.COUPLED, sampling) == sampling
    assert effective_sampling(Strategy.DETERMINISTIC, sampling) == Sampling(3, 0.0, 5, 0.5)


def test_greedy_accepts_no_draft_even_where_it_equals_the_argmax() -> None:
    rule = Rule(Strategy.GREEDY, effective_sampling(Strategy.GREEDY, Sampling(3, 1.0)))
    assert judge_by_rule(chain([3, 4]), saying(3, 4, 5), rule, 10, {END}) == [Ruling(3, False, draft=0)]
    assert judge_by_rule(chain([6]), saying(3, 4), rule, 10, {END}) == [Ruling(3, False, draft=0)]
    assert judge_by_rule([], saying(3), rule, 10, {END}) == [Ruling(3, False)]


def test_drafter_invariant_strategies() -> None:
    assert {Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY} == DRAFTER_INVARIANT
    assert [strategy for strategy in Strategy if strategy.draws] == [Strategy.PROBABILISTIC]


def test_residual_without_mass_gives_a_sample_of_the_target() -> None:
    """As where the two distributions are equal but for rounding."""
    p = np.array([0.0, 1.0])
    assert {decide(p, [(0, {0: 1e-300, 1: 1.0})], 3, position) for position in range(20)} == {1}


def plain_threshold(drafts: list[int], rows: list[Logits], sampling: Sampling, threshold: float) -> list[int]:
    """The threshold strategy, in the plainest form."""
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
def test_threshold_applies_to_the_filtered_probability(
    rows: list[Logits], sampling: Sampling, threshold: float, data: st.DataObject
) -> None:
    drafts = [data.draw(st.integers(0, len(row) - 1)) for row in rows[:-1]]
    rule = Rule(Strategy.THRESHOLD, sampling, threshold)
    expected = plain_threshold(drafts, rows, sampling, threshold)
    assert [each.token for each in judge_by_rule(chain(drafts), rows, rule, 30, set())] == expected
    tops = [Device(row).top_logits(1, sampling.softmax_temperature) for row in rows]
    assert [each.token for each in judge_by_rule(chain(drafts), tops, rule, 30, set())] == expected


def test_draft_behind_an_accepted_end_token_is_not_judged() -> None:
    flat = np.zeros((3, 8), np.float32)
    rule = Rule(Strategy.THRESHOLD, Sampling(0, 1.0), 0.1)
    assert [each[:2] for each in judge_by_rule(chain([END, 1]), flat, rule, 0, {END})] == [(END, True)]
    rule = Rule(Strategy.PROBABILISTIC, Sampling(0, 1.0))
    rulings = judge_by_rule(chain([END, 1], [{END: 0.05, 1: 0.95}, {1: 1.0}]), flat, rule, 0, {END})
    assert [each[:2] for each in rulings] == [(END, True)]


@pytest.mark.parametrize(
    ("left", "right", "length"), [([], [], 0), ([1], [], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 9, 3], 1)]
)
def test_common_prefix(left: list[int], right: list[int], length: int) -> None:
    assert common_prefix(left, right) == common_prefix(right, left) == length
