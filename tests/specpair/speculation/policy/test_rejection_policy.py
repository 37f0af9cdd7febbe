"""Rejection policies computed by hand, for passes of 25 ms plus 0.5 ms a draft token."""

from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.schedule import NOT_SOON, RejectionPolicy, best_rejection_policy

STEP, MOST = 0.025, 16  # seconds of a pass; draft tokens


class Costs:
    """Stands in for a LatencyModel with measured times."""

    margin = 0.002

    def __init__(self, link: float, draft: float, is_shared: bool = False) -> None:
        self.link, self._draft, self.is_shared = link, draft, is_shared

    def draft(self) -> float:
        return self._draft

    def cost(self, drafts: int) -> float:
        return STEP + 0.0005 * drafts


def _next_in(policy: RejectionPolicy) -> float:
    assert policy.next_in is not None
    return policy.next_in


def _plan(
    right: float,
    link: float,
    draft: float,
    rate: float,
    next_draft_ready: float = 0.0,
    may: bool = True,
    shared: bool = False,
) -> RejectionPolicy:
    chances = [1.0, *accumulate([right] * (MOST + 1), mul)]
    return best_rejection_policy(Costs(link, draft, shared), chances, rate, next_draft_ready, may_self_continue=may)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("right", "link", "draft", "self_continue"),
    [
        (0.9, 0.002, 0.004, False),  # a good draft arrives soon
        (0.9, 0.05, 0.004, True),  # the draft arrives two steps later
        (0.9, 0.002, 0.04, True),  # drafting takes longer than a step
        (0.5, 0.002, 0.004, False),
        (0.5, 0.015, 0.004, True),  # the draft is not worth half a step
    ],
)
def test_verifier_self_continues_where_that_gains_more_than_waiting(
    right: float, link: float, draft: float, self_continue: bool
) -> None:
    rate = max(40.0, (1.0 + right) / (STEP + link + draft))
    assert _plan(right, link, draft, rate).self_continue == self_continue
    assert not _plan(right, link, draft, rate, may=False).self_continue


def test_waiting_verifier_is_told_how_long() -> None:
    """A round trip of two milliseconds, and the time of some draft tokens."""
    found = _plan(0.9, 0.002, 0.004, 100.0)
    assert not found.self_continue and round((_next_in(found) - 0.002) / 0.004, 9) in range(3, 12)
    assert _next_in(_plan(0.9, 0.002, 0.004, 100.0, next_draft_ready=0.99)) < 0.005


@given(right=st.floats(0.0, 1.0), link=st.floats(0.0, 0.1), draft=st.floats(1e-4, 0.04), rate=st.floats(1.0, 300.0))
def test_waiting_verifier_waits_for_the_draft_length_of_the_greatest_value(
    right: float, link: float, draft: float, rate: float
) -> None:
    """The tokens count 8 % more, because self-continuation must gain more than a trifle."""
    chances = [1.0, *accumulate([right] * MOST, mul)]

    def worth(drafts: float) -> float:
        return 1.08 * sum(chances[: round(drafts) + 1]) - rate * (drafts * draft + 0.0005 * drafts)

    found = _plan(right, link, draft, rate, may=False)
    assert worth((_next_in(found) - link) / draft) == pytest.approx(max(map(worth, range(1, MOST + 1))), abs=1e-9)


def test_verifier_waits_between_steps_only_for_a_draft_that_comes_soon() -> None:
    """On a link of two steps it may wait after the second step. Where the wait is long, it self-continues at once."""
    for link in (0.051, 0.058, 0.07):
        found = _plan(0.9, link, 0.002, 80.0)
        assert found.self_continue
        assert _next_in(found) == NOT_SOON or (_next_in(found) + 1e-9) % STEP <= 0.4 * STEP + 2e-9  # rounding
    assert any(_next_in(_plan(0.9, link / 1e3, 0.004, 80.0)) < NOT_SOON for link in range(30, 60))


def test_shared_passes_self_continue_but_announce_the_draft() -> None:
    """Shared passes take place in any case, so leaving them out gains nothing."""
    assert not _plan(0.9, 0.002, 0.004, 100.0).self_continue
    assert _plan(0.9, 0.002, 0.004, 100.0, shared=True).self_continue
    soon = _plan(0.9, 0.002, 0.004, 100.0, next_draft_ready=0.99, shared=True)
    assert soon.self_continue and _next_in(soon) < 0.005


def test_useless_drafter_is_not_waited_for() -> None:
    assert _plan(0.0, 0.03, 0.004, 1.0 / STEP) == (True, NOT_SOON)
