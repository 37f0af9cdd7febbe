"""A proposal is the choice that the verifier would make of the same row, or a draw with its distribution."""

import numpy as np
import pytest

from specpair.speculation.acceptance.draft_probs import propose
from specpair.speculation.drafting.proposing import proposal
from specpair.speculation.sampling.sampling import Sampling, choose, choose_several

SAMPLINGS = [Sampling(), Sampling(3, 0.8), Sampling(5, 1.2, top_k=5, top_p=0.9)]


def rows(count: int) -> list[np.ndarray]:
    draws = np.random.default_rng(0)
    return [draws.standard_normal(40).astype(np.float32) * 3 for _ in range(count)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "warm", "filtered"])
def test_it_is_chosen_with_the_noise_of_the_verifier(sampling: Sampling) -> None:
    for position, row in enumerate(rows(20)):
        found = proposal(row, sampling, position)
        assert (found.token, found.tokens, found.probs) == (choose(row, sampling, position), (found.token,), None)
        assert 0.0 < found.confidence <= 1.0
        several = proposal(row, sampling, position, runners_up=2)
        assert list(several.tokens) == choose_several(row, sampling, position, 3)
        assert several.token == found.token and several.confidence == pytest.approx(found.confidence)


@pytest.mark.parametrize("sampling", SAMPLINGS[1:], ids=["warm", "filtered"])
def test_it_is_drawn_from_the_distribution_that_is_sent_along(sampling: Sampling) -> None:
    same = 0
    for position, row in enumerate(rows(60)):
        found = proposal(row, sampling, position, draws=True)
        weights = propose(row, sampling)
        assert found.probs == weights and found.runner_up is None
        assert found.confidence == pytest.approx(weights[found.token] / sum(weights.values()))
        same += found.token == choose(row, sampling, position)
    assert same < 60, "its noise is not that of the verifier"
