"""Committed tokens are samples of the target for any drafts, and the tests detect the classic mistakes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.acceptance.draft_probs import Weights, drawn_from, propose
from specpair.speculation.acceptance.judge import Rule, coin, decide, judge
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.draft import chain
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.gumbel import Purpose
from specpair.speculation.sampling.sampling import Logits, Sampling, choose
from tests.specpair.speculation import chi_square
from tests.specpair.speculation.drafted_decoding import Decide, by_rule, is_the_targets, ours, target_row, text, texts
from tests.specpair.speculation.rows import Device, samplings, seeds, small_rows

pytestmark = pytest.mark.slow

WARM = Sampling(0, 1.0)
FILTERED = Sampling(0, 1.2, 3, 0.95)
SETTINGS = pytest.mark.parametrize("sampling", [WARM, FILTERED, Sampling(0, 0.6, 3), Sampling(0, 1.5, 0, 0.7)], ids=str)
DRAFTS = pytest.mark.parametrize("drafts", [1, 2, 3])


@SETTINGS
@DRAFTS
def test_probabilistic_text_is_a_sample_of_the_target(sampling: Sampling, drafts: int) -> None:
    found = texts(ours(Strategy.PROBABILISTIC), sampling, drafts, 2)
    assert is_the_targets(found, sampling, 2), "pairs"
    singles: Counter[tuple[int, ...]] = Counter()
    for (first, _), times in found.items():
        singles[first,] += times
    assert is_the_targets(singles, sampling, 1), "single tokens"


@SETTINGS
def test_coupled_text_is_a_sample_of_the_target(sampling: Sampling) -> None:
    assert is_the_targets(texts(ours(Strategy.COUPLED), sampling, 2, 2), sampling, 2)


def test_threshold_is_lossy() -> None:
    def make(sampling: Sampling) -> Decide:
        return by_rule(Rule(Strategy.THRESHOLD, sampling, 0.2))

    assert not is_the_targets(texts(make, WARM, 2, 1), WARM, 1)


@pytest.mark.parametrize(
    "strategy", [Strategy.DETERMINISTIC, Strategy.GREEDY, Strategy.COUPLED, Strategy.PROBABILISTIC]
)
@DRAFTS
def test_text_at_temperature_0_is_the_targets_argmax(strategy: Strategy, drafts: int) -> None:
    given = Sampling(5, 1.3 if strategy in (Strategy.DETERMINISTIC, Strategy.GREEDY) else 0.0)
    rule = Rule(strategy, effective_sampling(strategy, given))
    tokens = text(rule.sampling, by_rule(rule), drafts, 12)
    assert list(tokens) == [int(target_row(token).argmax()) for token in (0, *tokens)[:12]]


def plain_judge(drafts: list[int], rows: list[Logits], proposals: list[Weights], sampling: Sampling) -> list[int]:
    """Speculative sampling in the plainest form: whole vocabulary, float64, `p / q` and the residual written out."""
    tokens: list[int] = []
    for at, (draft, weights) in enumerate(zip(drafts, proposals, strict=True)):
        p = probabilities(rows[at], sampling)
        q = np.zeros(len(p))
        total = sum(weights.values())
        for token, weight in weights.items():
            q[token] = weight / total
        u = gumbel.uniform(gumbel.row_key(sampling.seed, 40 + at, Purpose.COIN))
        if u < p[draft] / q[draft]:
            tokens.append(draft)
            continue
        residual = np.maximum(0.0, p - q)
        residual = residual if residual.sum() > 0.0 else p
        v = gumbel.uniform(gumbel.row_key(sampling.seed, 40 + at, Purpose.RESIDUAL))
        reached = 0.0
        for token, weight in enumerate(residual / residual.sum()):
            reached += weight
            if weight > 0.0 and v < reached:
                return [*tokens, token]
        return [*tokens, int(np.flatnonzero(residual)[-1])]
    return [*tokens, choose(rows[-1], sampling, 40 + len(drafts))]


@given(
    st.lists(small_rows.filter(lambda row: len(row) > 2), min_size=1, max_size=4),
    samplings | st.just(Sampling(9)),
    seeds,
)
def test_probabilistic_judge_matches_the_papers(rows: list[Logits], sampling: Sampling, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drafter_rows = [row + rng.standard_normal(len(row)).astype(np.float32) for row in rows[:-1]]
    proposals = [propose(drafter_row, sampling) for drafter_row in drafter_rows]
    drafts = [drawn_from(weights, sampling.seed, 40 + at) for at, weights in enumerate(proposals)]
    expected = plain_judge(drafts, rows, proposals, sampling)
    rule = Rule(Strategy.PROBABILISTIC, sampling)
    rulings = judge(chain(drafts, proposals), rows, rule, 40, set())
    assert [each.token for each in rulings] == expected
    assert [each.accepted for each in rulings] == [True] * (len(expected) - 1) + [False]
    tops = [Device(row).top_logits(2, sampling.softmax_temperature) for row in rows]
    assert judge(chain(drafts, proposals), tops, rule, 40, set()) == rulings, (
        "the same from top logits, and when repeated"
    )


def test_draft_token_without_distribution_counts_as_certain() -> None:
    """A looked-up token: the committed token is still a sample of the target, and not this token if it is rejected."""
    p = probabilities(target_row(0), WARM)
    outcomes = [
        judge(chain([1]), [target_row(0)] * 2, Rule(Strategy.PROBABILISTIC, Sampling(seed, 1.0)), 3, set())[0]
        for seed in range(2000)
    ]
    counts = [sum(ruling.token == each for ruling in outcomes) for each in range(len(p))]
    assert chi_square.fits(counts, p.tolist())
    assert all((ruling.token == 1) == ruling.accepted for ruling in outcomes)


def test_empty_residual_falls_back_to_the_target() -> None:
    """p and q are equal but for rounding: a coin in between rejects, and the residual is empty."""
    seed = next(seed for seed in range(100_000) if coin(seed, 0) > 0.9999)
    p = np.array([0.5 - 1e-4, 0.5 - 1e-4, 0.0])
    assert coin(seed, 0) * 0.5 > p[0]
    assert decide(p, [(0, {0: 0.5, 1: 0.5})], seed, 0) in (0, 1)
