"""Drafts are shorter where a pass over more tokens reads more experts, as it is told or as it is measured."""

from collections.abc import Callable

import pytest

from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from tests.specpair.speculation.policy.virtual_pair import Knowing, run

STEP = 0.04  # seconds of a pass over one token of either model


def dense(tokens: int) -> float:
    return STEP + 0.0008 * (tokens - 1)


def experts(tokens: int) -> float:
    """Of 64 experts, each token uses 8, and reading these takes three quarters of a step."""
    read = 64 * (1 - (1 - 8 / 64) ** tokens)
    return 0.25 * dense(tokens) + 0.75 * STEP * read / 8


@pytest.mark.parametrize("mechanisms", [Mechanisms(), LOCKSTEP], ids=str)
@pytest.mark.parametrize(("told", "least"), [(experts, 0.97), (dense, 0.94)])
@pytest.mark.parametrize("right", [0.5, 0.8])
def test_drafts_are_shorter_for_a_model_with_experts(
    mechanisms: Mechanisms, told: Callable[[int], float], least: float, right: float
) -> None:
    """If it is told the times of a dense model, it measures the others, which takes some tokens."""
    wide = run(Knowing(right), mechanisms, rtt=0.001, draft=0.001, curve=dense).course
    estimates = Estimates.untaught([told(tokens) for tokens in range(1, 18)])
    narrow = run(Knowing(right), mechanisms, rtt=0.001, draft=0.001, curve=experts, estimates=estimates).course
    assert narrow.judged / narrow.drafts_sent < 0.6 * wide.judged / wide.drafts_sent
    assert narrow.tokens_per_second > least / STEP, "against the target alone"
