"""Draft model and lookup are each other's second opinion: where both have the same token it is likelier to stand."""

from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.committed_text import CommittedText
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.node_selection import expandable_nodes
from specpair.speculation.drafts.tree import Proposal, TreeNode

REPEATED = [*range(10, 30)] * 2  # 10 comes next, by lookup


def _text(lookup: bool = True) -> CommittedText:
    return CommittedText(list(REPEATED), frozenset(), Lookups(in_text=lookup))


def _grown(proposal: Proposal, lookup: bool = True) -> CommittedText:
    text = _text(lookup)
    text.grow(text.tree.root, proposal)
    return text


def _chance(text: CommittedText) -> float:
    return text.chances(text.tree.main())[1]


def test_a_token_that_the_lookup_has_too_is_likelier_accepted() -> None:
    alone, agreed = _grown(Proposal(10, 0.6), lookup=False), _grown(Proposal(10, 0.6))
    [node] = agreed.tree.main()
    assert (node.token, node.source.looked_up) == (10, False)
    assert 0.0 < node.second_opinion < 1.0
    assert _chance(agreed) > _chance(alone)


def test_a_sure_token_stays_the_first_choice_and_is_less_likely_accepted() -> None:
    alone, other = _grown(Proposal(77, 0.99, 78), lookup=False), _grown(Proposal(77, 0.99, 78))
    [node] = other.tree.main()
    assert (node.token, node.source.looked_up) == (77, False)
    assert node.second_opinion < 0.0
    assert _chance(other) < _chance(alone)


def test_a_likelier_looked_up_token_becomes_the_first_choice() -> None:
    text = _grown(Proposal(77, 0.02, 78))
    first, second = text.tree.root.children or []
    assert (first.token, first.source.looked_up) == (10, True)
    assert first.second_opinion == pytest.approx(-0.02)
    assert (second.token, second.source.looked_up) == (77, False)
    assert first.parent == second.parent == ref(text.tree.root)


def test_a_drawn_token_is_never_replaced() -> None:
    text = _grown(Proposal(77, 0.02, None, {77: 0.02, 5: 0.98}))
    [only] = text.tree.root.children or []
    assert (only.token, only.second_opinion) == (77, 0.0)


@pytest.mark.parametrize(("token", "opinion"), [(10, 0.7), (77, -0.7)])
def test_the_model_is_the_second_opinion_of_a_looked_up_token(token: int, opinion: float) -> None:
    text = _text()
    assert text.look_up(1, (), always=True)
    text.grow(text.tree.root, Proposal(token, 0.7))
    [node] = text.tree.main()
    assert (node.token, node.source.looked_up, node.second_opinion) == (10, True, opinion)


def test_a_prediction_behind_a_node_that_the_text_has_left_changes_nothing() -> None:
    text = _grown(Proposal(10, 0.9))
    [node] = text.tree.main()
    text.commit([99])
    text.grow(node, Proposal(11, 0.9))
    assert text.tree.main() == []


def test_outcomes_teach_how_far_to_trust_the_second_opinion() -> None:
    """The model is right where the lookup has the same token, and only there."""
    text = _text()
    for turn in range(30):
        right = turn % 2 == 0
        upcoming = REPEATED[(len(text.known) - len(REPEATED)) % 20]
        text.grow(text.tree.root, Proposal(upcoming if right else 77, 0.9))
        text.tree.root.children = [child for child in text.tree.root.children or [] if not child.source.looked_up]
        text.commit([upcoming])
        text.learn()
    upcoming = REPEATED[(len(text.known) - len(REPEATED)) % 20]
    taught = {}
    for token in (upcoming, 77):
        text.tree.root.children = None
        text.grow(text.tree.root, Proposal(token, 0.9))
        children: list[TreeNode] = text.tree.root.children or []
        [node] = [child for child in children if child.token == token]
        taught[token] = text.chances([node])[1]
    assert taught[upcoming] > 0.8 > 0.3 > taught[77]


@given(st.lists(st.tuples(st.sampled_from(["grow", "commit", "learn", "look up"]), st.integers(0, 5)), max_size=30))
def test_remembered_nodes_are_those_of_the_present_tree_and_model(events: list[tuple[str, int]]) -> None:
    acceptance = AcceptanceModel()
    text = CommittedText(list(REPEATED), frozenset(), Lookups(in_text=True), acceptance)
    for event, value in events:
        nodes = text.expandable_nodes(8, 3)
        match event:
            case "grow" if nodes:
                text.grow(nodes[value % len(nodes)][1], Proposal(10 + value, 0.3 + value / 10, 11 + value))
            case "commit":
                text.commit([10 + value])
            case "learn":
                text.learn()
            case "look up":
                text.look_up(value, (), always=True)
        for limits in ((8, 3), (4, 0), (8, 3)):
            assert text.expandable_nodes(*limits) == expandable_nodes(text.tree, acceptance, *limits)
