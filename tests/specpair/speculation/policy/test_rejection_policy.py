"""Rejection policies computed by hand, for passes of 25 ms plus 0.5 ms a draft token."""

from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.rejection_policy import NOT_SOON, RejectionPolicy, best_rejection_policy

STEP, MOST = 25.0, 16


class Costs:
    """Stands in for a LatencyModel with measured times."""

    margin = 2.0

    def __init__(self, link: float, draft: float, is_shared: bool = False) -> None:
        self.link, self._draft, self.is_shared = link, draft, is_shared

    def draft(self) -> float:
        return self._draft

    def cost(self, drafts: int) -> float:
        return STEP + 0.5 * drafts


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
        (0.9, 2.0, 4.0, False),  # a good draft arrives soon
        (0.9, 50.0, 4.0, True),  # the draft arrives two steps later
        (0.9, 2.0, 40.0, True),  # drafting takes longer than a step
        (0.5, 2.0, 4.0, False),
        (0.5, 15.0, 4.0, True),  # the draft is not worth half a step
    ],
)
def test_verifier_self_continues_where_that_gains_more_than_waiting(
    right: float, link: float, draft: float, self_continue: bool
) -> None:
    rate = max(0.04, (1.0 + right) / (STEP + link + draft))
    assert _plan(right, link, draft, rate).self_continue == self_continue
    assert not _plan(right, link, draft, rate, may=False).self_continue


def test_waiting_verifier_is_told_how_long() -> None:
    """A round trip of two milliseconds, and the time of some draft tokens."""
    found = _plan(0.9, 2.0, 4.0, 0.1)
    assert not found.self_continue and (found.next_in - 2.0) / 4.0 in range(3, 12)
    assert _plan(0.9, 2.0, 4.0, 0.1, next_draft_ready=0.99).next_in < 5.0


@given(right=st.floats(0.0, 1.0), link=st.floats(0.0, 100.0), draft=st.floats(0.1, 40.0), rate=st.floats(0.001, 0.3))
def test_waiting_verifier_waits_for_the_draft_length_of_the_greatest_value(
    right: float, link: float, draft: float, rate: float
) -> None:
    """The tokens count 8 % more, because self-continuation must gain more than a trifle."""
    chances = [1.0, *accumulate([right] * MOST, mul)]

    def worth(drafts: float) -> float:
        return 1.08 * sum(chances[: round(drafts) + 1]) - rate * (drafts * draft + 0.5 * drafts)

    found = _plan(right, link, draft, rate, may=False)
    assert worth((found.next_in - link) / draft) == pytest.approx(max(map(worth, range(1, MOST + 1))), abs=1e-9)


def test_verifier_waits_between_steps_only_for_a_draft_that_comes_soon() -> None:
    """On a link of two steps it may wait after the second step. Where the wait is long, it self-continues at once."""
    for link in (51.0, 58.0, 70.0):
        found = _plan(0.9, link, 2.0, 0.08)
        assert found.self_continue
        assert found.next_in == NOT_SOON or found.next_in % STEP <= 0.4 * STEP
    assert any(_plan(0.9, link, 4.0, 0.08).next_in < NOT_SOON for link in range(30, 60))


def test_shared_passes_self_continue_but_announce_the_draft() -> None:
    """Shared passes take place in any case, so leaving them out gains nothing."""
    assert not _plan(0.9, 2.0, 4.0, 0.1).self_continue
    assert _plan(0.9, 2.0, 4.0, 0.1, shared=True).self_continue
    soon = _plan(0.9, 2.0, 4.0, 0.1, next_draft_ready=0.99, shared=True)
    assert soon.self_continue and soon.next_in < 5.0


def test_useless_drafter_is_not_waited_for() -> None:
    assert _plan(0.0, 30.0, 4.0, 1.0 / STEP) == (True, NOT_SOON)
