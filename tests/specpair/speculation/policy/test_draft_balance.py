"""Where draft tokens bring less than was thought, they soon have to be sure, and a text is hardly slower for them."""

import pytest

from backends.scripted import Script
from specpair.drafters.lookup import NgramDrafter
from specpair.speculation.policy.draft_balance import DraftBalance
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from tests.specpair.speculation.policy.virtual_pair import run

STEP = 0.04  # seconds


def hybrid(tokens: int) -> float:
    """A pass of a hybrid model in which most drafts are rejected, and accepted tokens are read again."""
    return STEP + 0.0008 * (tokens - 1) + 0.006 * (tokens > 1)


def rate(seed: int, support: int) -> float:
    """Tokens per second, times the target alone, with lookup in a text of `support` different tokens."""
    estimates = Estimates.untaught([STEP, *[STEP + 0.0026 + 0.0008 * drafts for drafts in range(1, 17)]])
    script = Script(seed=seed, support=support)
    drafter, mechanisms = NgramDrafter(6), Mechanisms()
    pair = run(drafter, mechanisms, rtt=0.0007, draft=5e-5, curve=hybrid, script=script, count=128, estimates=estimates)
    return pair.course.tokens_per_second * STEP


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("support", [16, 24])
def test_a_text_that_hardly_repeats_is_not_slower_for_its_drafts(seed: int, support: int) -> None:
    assert rate(seed, support) > 0.98


@pytest.mark.parametrize("seed", range(2))
def test_a_text_that_repeats_gains_as_much_as_before(seed: int) -> None:
    assert rate(seed, 2) > 5.0


def test_what_drafts_bring_and_cost_is_added_up() -> None:
    balance = DraftBalance(LatencyModel([STEP]))
    for _ in range(4):
        balance.plain(STEP)
    begun = balance.passes
    balance.judged(3, 2 * STEP)
    assert balance.passes == pytest.approx(begun + 1.0)
    balance.plain(1.5 * STEP)  # it read accepted tokens again
    assert balance.passes == pytest.approx(begun + 0.5)
    balance.judged(1, 1.8 * STEP)
    assert not balance.in_debt
    balance.judged(1, 1.4 * STEP)
    assert balance.in_debt


def test_a_debt_is_forgiven_in_time() -> None:
    balance = DraftBalance(LatencyModel([STEP]))
    balance.judged(1, 2 * STEP)
    balance.plain(STEP)
    tokens = 0
    while balance.in_debt:
        balance.plain(STEP)
        tokens += 1
    assert 50 < tokens < 200
