"""The distributions of a verify request are checked, and an error names what is wrong."""

import json
import math

import pytest
from hypothesis import given

from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.draft_probs import drawn_from, normalised, propose
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.specpair.speculation.rows import positions, rows, samplings
from verifier_server.generation.verify import read_distributions


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
        read_distributions([{"5": 1.0}, sent], [5, 5], 100)
    assert caught.value.details == {"param": "draft_probs.1"}


def test_rounded_weights_are_accepted() -> None:
    assert read_distributions([{"6": 0.3331, "5": 0.6662}], [5], 100) == [{5: 0.6662, 6: 0.3331}]


@pytest.mark.parametrize(("drafts", "most"), [(1, 8192), (64, 8192), (512, 16384)])
def test_number_of_ids_of_a_request_is_limited(drafts: int, most: int) -> None:
    """The limit is at least what a drafter sends for so many draft tokens."""
    each = most // drafts
    weights = {str(token): 1 / each for token in range(each)}
    assert len(read_distributions([weights] * drafts, [5] * drafts, 10_000)) == drafts
    one_more = {str(token): 1 / (each + 1) for token in range(each + 1)}
    with pytest.raises(InvalidRequest, match=f"{most + 1} ids for {drafts} draft_tokens, at most {most}") as caught:
        read_distributions([*[weights] * (drafts - 1), one_more], [5] * drafts, 10_000)
    assert caught.value.details == {"param": "draft_probs", "limit": most}


@pytest.mark.parametrize("sent", [[], [{"1": 1.0}], [{"1": 1.0}] * 3])
def test_each_draft_token_needs_a_distribution(sent: list[dict[str, float]]) -> None:
    with pytest.raises(InvalidRequest, match=f"there are {len(sent)} of them for 2 draft_tokens"):
        read_distributions(sent, [1, 1], 100)


@given(rows, samplings, positions)
def test_distribution_survives_the_wire_exactly(logits: Logits, sampling: Sampling, position: int) -> None:
    weights = propose(logits, sampling)
    draft = drawn_from(weights, sampling.seed, position)
    assert 1 <= len(weights) <= 32
    assert list(weights) == sorted(weights)
    on_the_wire = json.loads(json.dumps({str(token): weight for token, weight in weights.items()}))
    (arrived,) = read_distributions([on_the_wire], [draft], len(logits))
    assert normalised(arrived) == normalised(weights), "to the last bit"
    assert list(arrived) == list(weights)
    assert drawn_from(arrived, sampling.seed, position) == draft
