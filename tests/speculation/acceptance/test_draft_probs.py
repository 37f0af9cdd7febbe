"""The distribution of draft tokens: small, complete, equal on both ends, and validated by the verifier."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from speculation.acceptance import draft_probs
from speculation.acceptance.draft_probs import drawn_from, normalised, propose
from speculation.errors import InvalidRequest
from speculation.sampling.distribution import probabilities
from speculation.sampling.sampling import Logits, Sampling
from tests.speculation import chi_square
from tests.speculation.rows import device_and_top_logits, positions, rows, samplings, shares

ROW = np.random.default_rng(5).standard_normal(2000).astype(np.float32) * 3
WARM = Sampling(3, 0.8)


@given(rows, samplings, positions)
def test_distribution_survives_the_wire_exactly(logits: Logits, sampling: Sampling, position: int) -> None:
    weights = propose(logits, sampling)
    draft = drawn_from(weights, sampling.seed, position)
    assert 1 <= len(weights) <= 32
    assert list(weights) == sorted(weights)
    on_the_wire = json.loads(json.dumps({str(token): weight for token, weight in weights.items()}))
    (arrived,) = draft_probs.read([on_the_wire], [draft], len(logits))
    assert normalised(arrived) == normalised(weights), "to the last bit"
    assert list(arrived) == list(weights)
    assert drawn_from(arrived, sampling.seed, position) == draft


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


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"5": 0.5}, "sum to 0.5, not to 1"),
        ({"5": 0.998}, "sum to 0.998"),
        ({"5": 1.0, "6": 0.5}, "sum to 1.5"),
        ({"5": 0.5, "6": math.nan}, "the weight of 6 is nan"),
        ({"5": 0.5, "6": math.inf}, "the weight of 6 is inf"),
        ({"5": 1.0, "6": 0.0}, "the weight of 6 is 0.0"),
        ({"5": 0.5, "6": -0.5}, "the weight of 6 is -0.5"),
        ({"5": 1.5, "6": 0.5}, "the weight of 5 is 1.5"),
        ({"5": 1e308, "6": 1e308}, "the weight of 5 is 1e\\+308"),
        ({"6": 1.0}, "the draft token 5 is not among the ids"),
        ({}, "the draft token 5 is not among"),
        ({"5": 0.5, "100": 0.5}, "'100' is no token id of the vocabulary of 100 ids"),
        ({"5": 0.5, "-1": 0.5}, "'-1' is no token id"),
        ({"5": 0.5, "06": 0.5}, "'06' is no token id"),
        ({"5": 0.5, "²": 0.5}, "'²' is no token id"),
        ({"5": 0.5, "": 0.5}, "'' is no token id"),
        ({"5": 0.5, "9" * 5000: 0.5}, "is no token id"),
    ],
)
def test_invalid_distribution_is_refused_with_its_position(sent: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidRequest, match="draft_probs.1: .*" + words) as caught:
        draft_probs.read([{"5": 1.0}, sent], [5, 5], 100)
    assert caught.value.details == {"param": "draft_probs.1"}


def test_rounded_weights_are_accepted() -> None:
    assert draft_probs.read([{"6": 0.3331, "5": 0.6662}], [5], 100) == [{5: 0.6662, 6: 0.3331}]


@pytest.mark.parametrize(("drafts", "most"), [(1, 8192), (64, 8192), (512, 16384)])
def test_number_of_ids_of_a_request_is_limited(drafts: int, most: int) -> None:
    """The limit is at least what a drafter sends for so many draft tokens."""
    each = most // drafts
    weights = {str(token): 1 / each for token in range(each)}
    assert len(draft_probs.read([weights] * drafts, [5] * drafts, 10_000)) == drafts
    one_more = {str(token): 1 / (each + 1) for token in range(each + 1)}
    with pytest.raises(InvalidRequest, match=f"{most + 1} ids for {drafts} draft_tokens, at most {most}") as caught:
        draft_probs.read([*[weights] * (drafts - 1), one_more], [5] * drafts, 10_000)
    assert caught.value.details == {"param": "draft_probs", "limit": most}


@pytest.mark.parametrize("sent", [[], [{"1": 1.0}], [{"1": 1.0}] * 3])
def test_each_draft_token_needs_a_distribution(sent: list[dict[str, float]]) -> None:
    with pytest.raises(InvalidRequest, match=f"there are {len(sent)} of them for 2 draft_tokens"):
        draft_probs.read(sent, [1, 1], 100)
