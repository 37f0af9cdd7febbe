"""Which draft tokens each strategy accepts, and the numbers that decisions report."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specpair.speculation.acceptance.draft_probs import propose
from specpair.speculation.acceptance.judge import Decision, Rule, Ruling, explain
from specpair.speculation.acceptance.judge import judge as judge_by_rule
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.draft import chain
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.gumbel import Purpose
from specpair.speculation.sampling.sampling import Logits, Sampling, choose
from tests.specpair.speculation.rows import Device, device_and_top_logits, rows, samplings, shares, small_rows

GREEDY = Sampling()
END = 7


def saying(*tokens: int) -> list[Logits]:
    """Rows of logits with these tokens as argmax."""
    return [np.eye(8, dtype=np.float32)[token] for token in tokens]


def test_greedy_accepts_no_draft_even_where_it_equals_the_argmax() -> None:
    rule = Rule(Strategy.GREEDY, effective_sampling(Strategy.GREEDY, Sampling(3, 1.0)))
    assert judge_by_rule(chain([3, 4]), saying(3, 4, 5), rule, 10, {END}) == [Ruling(3, False, draft=0)]
    assert judge_by_rule(chain([6]), saying(3, 4), rule, 10, {END}) == [Ruling(3, False, draft=0)]
    assert judge_by_rule([], saying(3), rule, 10, {END}) == [Ruling(3, False)]


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


@given(rows, samplings)
def test_distribution_is_the_likeliest_part_of_the_filtered_one(logits: Logits, sampling: Sampling) -> None:
    """Drafts use the same filters as the target. Other filters would cause needless rejections."""
    order = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))
    unfiltered = probabilities(logits, replace(sampling, top_p=1.0))[order]
    if sampling.top_p < 1.0:  # sums in different order may disagree on an id at the edge
        assume(np.abs(np.cumsum(unfiltered) - sampling.top_p).min() > 1e-9)
    p = probabilities(logits, sampling)
    kept = [token for token in order.tolist() if p[token] > 0.0][:32]
    q = p[kept] / p[kept].sum()
    assume(np.abs(q - 1e-5).min() > 1e-10)
    expected = {token: each for token, each in zip(kept, q.tolist(), strict=True) if each > 1e-5}
    assert propose(logits, sampling) == pytest.approx(expected, rel=1e-5)


@given(rows, samplings, shares)
def test_top_logits_propose_what_their_row_proposes(logits: Logits, sampling: Sampling, share: float) -> None:
    _, top = device_and_top_logits(logits, share, sampling, 0)
    weights = propose(top, sampling)
    assert set(weights) <= set(top.ids.tolist())
    if sampling.top_p >= 1.0 and top.sure >= 32:
        assert weights == propose(logits, sampling)


ROWS: list[Logits] = list(np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32) * 2)
WARM = Sampling(9, 0.8, 5, 0.95)
PROPOSALS = [{0: 0.25, 1: 0.5, 4: 0.25}, {2: 1.0}, {3: 0.6, 5: 0.4}]
DRAFTS = [1, 2, 3]


def decided(rule: Rule, drafts: list[int] = DRAFTS) -> list[Decision]:
    proposals = PROPOSALS[: len(drafts)] if rule.strategy is Strategy.PROBABILISTIC else []
    rulings = judge_by_rule(chain(drafts, proposals), ROWS, rule, 20, set())
    decisions = explain(rule, rulings, chain(drafts, proposals), ROWS, 20)
    assert [each.token for each in decisions] == [each.token for each in rulings]
    assert [each.verdict == "accepted" for each in decisions] == [each.accepted for each in rulings]
    assert decisions[-1].verdict == ("own" if len(decisions) > len(drafts) else "rejected")
    for at, each in enumerate(decisions):
        reported = Sampling(9, 1.0) if rule.sampling.greedy else rule.sampling
        p = probabilities(ROWS[at], reported)
        assert each.p == p[each.token]
        if at < len(drafts):
            assert (each.draft, each.draft_p) == (drafts[at], p[drafts[at]])
        else:
            assert (each.draft, each.draft_p, each.q, each.drawn) == (None, None, None, None)
    return decisions


def test_probabilistic_decision_reports_coin_p_and_q() -> None:
    verdicts = set()
    for seed in range(200):
        for at, each in enumerate(decided(Rule(Strategy.PROBABILISTIC, Sampling(seed, 0.8, 5, 0.95)))[: len(DRAFTS)]):
            assert each.q is not None and each.drawn is not None and each.draft_p is not None
            assert each.q == pytest.approx((0.5, 1.0, 0.6)[at])
            assert each.drawn == gumbel.uniform(gumbel.row_key(seed, 20 + at, Purpose.COIN))
            assert (each.verdict == "accepted") == (each.drawn < each.draft_p / each.q)
            verdicts.add(each.verdict)
    assert verdicts == {"accepted", "rejected"}


def test_coupled_decision_reports_the_number_behind_the_noise() -> None:
    rule = Rule(Strategy.COUPLED, WARM)
    right = [each.token for each in judge_by_rule([], ROWS[:1], rule, 20, set())]
    for drafts in (right, [(right[0] + 1) % 6]):
        first = decided(rule, drafts)[0]
        assert first.drawn == gumbel.uniform(gumbel.row_key(9, 20), drafts[0])
        assert first.q is None


@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY, Strategy.THRESHOLD])
def test_decisions_without_a_draw_report_no_number(strategy: Strategy) -> None:
    sampling = effective_sampling(strategy, Sampling(9, 0.0 if strategy is Strategy.COUPLED else 0.8))
    for each in decided(Rule(strategy, sampling, 0.3)):
        assert (each.drawn, each.q) == (None, None)
