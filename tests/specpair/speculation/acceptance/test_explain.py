"""Decisions report the numbers that the rulings were made with."""

import numpy as np
import pytest

from specpair.speculation.acceptance.judge import Decision, Rule, explain, judge
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.draft import chain
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.gumbel import Purpose
from specpair.speculation.sampling.sampling import Logits, Sampling

ROWS: list[Logits] = list(np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32) * 2)
WARM = Sampling(9, 0.8, 5, 0.95)
PROPOSALS = [{0: 0.25, 1: 0.5, 4: 0.25}, {2: 1.0}, {3: 0.6, 5: 0.4}]
DRAFTS = [1, 2, 3]


def decided(rule: Rule, drafts: list[int] = DRAFTS) -> list[Decision]:
    proposals = PROPOSALS[: len(drafts)] if rule.strategy is Strategy.PROBABILISTIC else []
    rulings = judge(chain(drafts, proposals), ROWS, rule, 20, set())
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
    right = [each.token for each in judge([], ROWS[:1], rule, 20, set())]
    for drafts in (right, [(right[0] + 1) % 6]):
        first = decided(rule, drafts)[0]
        assert first.drawn == gumbel.uniform(gumbel.row_key(9, 20), drafts[0])
        assert first.q is None


@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY, Strategy.THRESHOLD])
def test_decisions_without_a_draw_report_no_number(strategy: Strategy) -> None:
    sampling = effective_sampling(strategy, Sampling(9, 0.0 if strategy is Strategy.COUPLED else 0.8))
    for each in decided(Rule(strategy, sampling, 0.3)):
        assert (each.drawn, each.q) == (None, None)


def test_body_is_the_json_object_of_replies() -> None:
    assert Decision(5, 0.5, 3, 0.25, None, 0.75, "rejected").body() == {
        "token": 5,
        "p": 0.5,
        "draft": 3,
        "draft_p": 0.25,
        "q": None,
        "drawn": 0.75,
        "verdict": "rejected",
    }
