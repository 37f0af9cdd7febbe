"""Drafts that are trees keep to what the verifier takes of a tree."""

from dataclasses import replace

import pytest

from specpair.speculation.draft import Draft, TreeLimits, leaves
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP
from specpair.speculation.policy.timing import LatencyModel


def _sent(limits: TreeLimits = TreeLimits(), wider: float = 0.0) -> Draft:
    """The first draft to a verifier whose passes cost the same at any width, by a drafter that is not sure.

    `wider`: seconds that another branch has added to a draft step of 2 ms.
    """
    latencies = LatencyModel([0.05] * 64)
    latencies.exchanged(0.02, 0.0, 0.0)
    latencies.drafted(1, 0.002)
    for _ in range(4):
        latencies.drafted(2, 0.002 + wider)
    controller = SpeculationController(
        [10, 11, 12, 13],
        1000,
        frozenset({999}),
        Estimates(latencies, AcceptanceModel()),
        DraftLength(None, 64),
        tree_limits=limits,
        width=4,
        mechanisms=replace(LOCKSTEP, trees=True),
    )
    now = 0.0
    while (request := controller.next_draft(now)) is None:
        step = controller.next_step(now)
        assert step is not None
        now += 0.002
        controller.drafted([Proposal.of(range(20, 26), [0.5, *[0.1] * 5])] * len(step.nodes), len(step.nodes), now)
    return request.draft


@pytest.mark.parametrize("limits", [TreeLimits(leaves=1), TreeLimits(leaves=3), TreeLimits(nodes=6), TreeLimits(2, 5)])
def test_a_tree_holds_no_more_than_the_verifier_takes(limits: TreeLimits) -> None:
    whole, sent = _sent(), _sent(limits)
    assert len(leaves(whole.parents)) > 3 and len(whole) > 6
    assert sent.cut(limits) == sent and len(sent.likeliest()) > 1
    assert sent.is_chain if limits.leaves == 1 else len(sent) < len(whole)


def test_no_branches_are_sent_where_they_take_much_of_a_draft_step() -> None:
    assert not _sent(wider=0.0001).is_chain
    assert _sent(wider=0.0004).is_chain
