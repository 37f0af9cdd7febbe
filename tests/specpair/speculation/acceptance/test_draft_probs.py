"""The distribution of draft tokens: small, complete, and equal on both ends."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from specpair.speculation.acceptance.draft_probs import drawn_from, propose
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.specpair.speculation import chi_square
from tests.specpair.speculation.rows import device_and_top_logits, rows, samplings, shares

ROW = np.random.default_rng(5).standard_normal(2000).astype(np.float32) * 3
WARM = Sampling(3, 0.8)


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


@pytest.mark.parametrize("sampling", [WARM, Sampling(3, 0.8, 5), Sampling(3, 0.8, 50, 0.6), Sampling(3, 1.2, 0, 0.4)])
def test_filters_apply_to_drafts(sampling: Sampling) -> None:
    p, weights = probabilities(ROW, sampling), propose(ROW, sampling)
    assert all(p[token] > 0.0 for token in weights)
    likeliest = np.lexsort((np.arange(len(p)), -p))[: min(32, np.count_nonzero(p))]
    assert set(weights) <= set(likeliest.tolist())
    assert math.fsum(p[token] for token in weights) > 0.999 * math.fsum(p[likeliest])


@given(rows, samplings, shares)
def test_top_logits_propose_what_their_row_proposes(logits: Logits, sampling: Sampling, share: float) -> None:
    _, top = device_and_top_logits(logits, share, sampling, 0)
    weights = propose(top, sampling)
    assert set(weights) <= set(top.ids.tolist())
    if sampling.top_p >= 1.0 and top.sure >= 32:
        assert weights == propose(logits, sampling)


def test_greedy_distribution_is_the_argmax() -> None:
    assert propose(ROW, Sampling(3)) == {int(ROW.argmax()): 1.0}


def test_drafts_follow_the_sent_distribution() -> None:
    weights = {3: 0.5, 10: 0.25, 11: 0.125, 500: 0.125}
    drawn = [drawn_from(weights, 77, position) for position in range(4000)]
    assert chi_square.fits([drawn.count(token) for token in weights], list(weights.values()))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_invalid_logits_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        propose(np.array([0.0, bad], np.float32), WARM)
