"""Siblings drawn without replacement, judged one after the other: the committed token is a sample of the target."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specpair.speculation.acceptance.draft_probs import Weights, drawn_from, normalised, propose, without
from specpair.speculation.acceptance.judge import Rule, coin, decide, explain, judge, residual
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import Draft, DraftToken
from specpair.speculation.sampling.sampling import Sampling
from tests.specpair.speculation.drafted_decoding import IDS, drafter_row, is_the_targets, target_row
from tests.specpair.speculation.trees import paths

distributions = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)
SETTINGS = pytest.mark.parametrize("sampling", [Sampling(0, 1.0), Sampling(0, 1.2, 3, 0.95)], ids=str)


def outcome(p: NDArray[np.float64], q: Weights, siblings: int) -> NDArray[np.float64]:
    """The distribution of the committed token: the sum over all draws of siblings, and over their coins."""
    p = p / p.sum()
    if not siblings or not q:
        return p
    found = np.zeros(len(p))
    for draft, chance in q.items():
        accepted = min(1.0, p[draft] / chance)
        found[draft] += chance * accepted
        if accepted < 1.0:
            behind = outcome(residual(p, q), without(q, draft), siblings - 1)
            found += chance * (1.0 - accepted) * behind
    return found


@given(distributions, distributions, st.integers(1, 4))
def test_the_committed_token_has_the_targets_distribution(p: list[int], q: list[int], siblings: int) -> None:
    """SpecInfer's theorem for draws without replacement, summed up without chance."""
    target = np.array(p, float) / sum(p)
    drafted = {token: weight / sum(q) for token, weight in enumerate(q) if weight}
    np.testing.assert_allclose(outcome(target, drafted, siblings), target, atol=1e-12)


@given(distributions, distributions, st.integers(0, 2**53 - 1))
def test_siblings_are_judged_in_order_by_coins_of_their_own(p: list[int], q: list[int], seed: int) -> None:
    target = np.array(p, float) / sum(p)
    left: Weights = normalised({token: float(weight) for token, weight in enumerate(q) if weight})
    siblings: list[tuple[int, Weights]] = []
    while left:
        token = drawn_from(left, seed, 5, len(siblings))
        siblings.append((token, left))
        left = without(left, token)
    p_left, expected = target, None
    for number, (token, weights) in enumerate(siblings):
        p_left = p_left / p_left.sum()
        if coin(seed, 5, number) < p_left[token] / weights[token]:
            expected = token
            break
        p_left = residual(p_left, weights)
    found = decide(target, siblings, seed, 5)
    assert target[found] > 0 and (expected is None or found == expected)
    assert sorted(token for token, _ in siblings) == [token for token, weight in enumerate(q) if weight]


def drawn_tree(before: int, position: int, sampling: Sampling, widths: Sequence[int]) -> Draft:
    """Siblings behind the text, and siblings behind each of these, and so on: `widths` of them at each depth."""
    made: list[DraftToken] = []
    level = [(-1, before)]
    for depth, width in enumerate(widths):
        nodes = []
        for parent, token in level:
            left = propose(drafter_row(token), sampling)
            for number in range(width):
                if not left:
                    break
                draft = drawn_from(left, sampling.seed, position + depth, number)
                nodes.append((len(made), draft))
                made.append(DraftToken(draft, probs=left, parent=len(made) - parent))
                left = without(left, draft)
        level = nodes
    return Draft(position, tuple(made))


@pytest.mark.slow
@SETTINGS
@pytest.mark.parametrize("widths", [[2], [3, 2], [IDS, 1]], ids=str)
@pytest.mark.parametrize("strategy", [Strategy.PROBABILISTIC, Strategy.COUPLED])
def test_text_with_drawn_trees_is_a_sample_of_the_target(
    sampling: Sampling, widths: list[int], strategy: Strategy
) -> None:
    found: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for seed in range(3000):
        seeded, tokens = Sampling(seed, sampling.temperature, sampling.top_k, sampling.top_p), [0]
        while len(tokens) <= 2:
            tree = drawn_tree(tokens[-1], len(tokens), seeded, widths)
            rows = [target_row([*tokens, *path][-1]) for path in paths(tree.tokens)]
            rulings = judge(tree.tokens, rows, Rule(strategy, seeded), len(tokens), set())
            accepted += sum(each.accepted for each in rulings)
            tokens += [each.token for each in rulings]
        found[tuple(tokens[1:3])] += 1
    assert is_the_targets(found, sampling, 2)
    assert accepted > 1500


def test_accepting_any_sibling_by_the_first_ones_odds_is_detected() -> None:
    """The mistake of judging each sibling against the whole target, without what the ones before it took."""
    target, drafted = np.array([0.5, 0.3, 0.2]), {0: 0.2, 1: 0.3, 2: 0.5}

    def wrong(q: Weights, siblings: int) -> NDArray[np.float64]:
        found = np.zeros(3)
        for draft, chance in q.items():
            accepted = min(1.0, target[draft] / chance)
            found[draft] += chance * accepted
            rest = wrong(without(q, draft), siblings - 1) if siblings > 1 else residual(target, q)
            found += chance * (1.0 - accepted) * rest / rest.sum()
        return found

    np.testing.assert_allclose(outcome(target, drafted, 1), target)
    assert np.abs(wrong(drafted, 2) - target).max() > 0.01


def test_the_decision_on_a_sibling_names_its_own_coin() -> None:
    row, first, second = target_row(0), {1: 1.0}, {2: 1.0}
    seen = set()
    for seed in range(200):
        rule = Rule(Strategy.PROBABILISTIC, Sampling(seed, 1.0))
        draft = (DraftToken(1, probs=first), DraftToken(2, probs=second, parent=2))
        rulings = judge(draft, [row] * 3, rule, 3, set())
        decision = explain(rule, rulings, draft, [row] * 3, 3)[0]
        number = 1 if decision.verdict == "accepted" and decision.draft == 2 else 0
        assert decision.drawn == coin(seed, 3, number)
        seen.add((decision.verdict, decision.draft))
    assert seen == {("accepted", 1), ("accepted", 2), ("rejected", 1)}
