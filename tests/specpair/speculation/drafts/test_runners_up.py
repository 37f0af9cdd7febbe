"""Which choice is right where the first is wrong is learnt by what the drafter thinks of it, or by its rank."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.acceptance_model import RunnersUp
from specpair.speculation.drafts.tree import Proposal, TreeNode

WRONG, RIGHT = 1, 2


def _children(*parts: float | None) -> list[TreeNode]:
    """A first choice, and further ones with tokens from `RIGHT` on."""
    first = TreeNode(WRONG, 0.5, None)
    return [first, *(TreeNode(RIGHT + rank, 0.1, None, part=part) for rank, part in enumerate(parts))]


@given(st.lists(st.none() | st.floats(0.0, 1.0), max_size=5))
def test_chances_are_those_of_one_choice_among_several(parts: list[float | None]) -> None:
    chances = RunnersUp().chances(_children(*parts))
    assert len(chances) == min(len(parts), 5) and all(0.0 <= each <= 1.0 for each in chances)
    assert sum(chances) <= 1.0 + 1e-9


def test_what_the_drafter_thinks_more_of_is_likelier_and_counts_more_than_the_rank() -> None:
    model = RunnersUp()
    assert model.chances(_children(0.9)) > model.chances(_children(0.3)) > model.chances(_children(0.01))
    low, high = model.chances(_children(0.1, 0.8))
    assert low < high


def test_parts_that_say_nothing_are_learnt_not_to_matter() -> None:
    model, random_ = RunnersUp(), random.Random(1)
    for _ in range(200):
        model.learn(_children(random_.random()), RIGHT if random_.random() < 0.3 else WRONG)
        model.fit()
    (likely,), (unlikely,) = model.chances(_children(0.9)), model.chances(_children(0.1))
    assert 0.15 < likely < 0.5 and 0.15 < unlikely < 0.5


def test_parts_that_are_right_are_learnt_to_be() -> None:
    model, random_ = RunnersUp(), random.Random(1)
    for _ in range(200):
        part = random_.random()
        model.learn(_children(part), RIGHT if random_.random() < part else WRONG)
        model.fit()
    for part in (0.1, 0.5, 0.9):
        assert model.chances(_children(part))[0] == pytest.approx(part, abs=0.15)


def test_a_choice_whose_part_is_unknown_has_the_share_of_its_rank() -> None:
    model = RunnersUp()
    for _ in range(100):
        model.learn(_children(None, None), RIGHT + 1)
    second, third = model.chances(_children(None, None))
    assert second < 0.01 and third > 0.9


def test_a_proposal_tells_the_parts_of_what_its_first_choice_leaves() -> None:
    proposal = Proposal.of([5, 6, 7], [0.6, 0.3, 0.05])
    assert proposal.tokens == (5, 6, 7) and proposal.confidence == 0.6
    assert proposal.parts == pytest.approx((0.75, 0.125))
    assert Proposal.of([5], [1.0]) == Proposal(5, 1.0)
    assert Proposal.of([5, 6], [1.0, 0.0]).parts == (0.0,)
