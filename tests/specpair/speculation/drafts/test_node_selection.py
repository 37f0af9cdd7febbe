"""Nodes to expand: every open leaf with the chance that the text passes through it, the likeliest first."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.acceptance_model import AcceptanceModel, recent_after
from specpair.speculation.drafts.node_selection import FLOOR, expandable_nodes
from specpair.speculation.drafts.tree import DraftTree, Proposal, TreeNode

RUNNER_UP = AcceptanceModel().runners_up.shares[0]
END = 9


def _tree(*confidences: float) -> DraftTree:
    """A path with these confidences; its tokens are 0, each with 1 as the runner-up."""
    tree = DraftTree({END})
    node = tree.root
    for confidence in confidences:
        tree.grow(node, Proposal(0, confidence, 1))
        node = (node.children or [])[0]
    return tree


def _found(tree: DraftTree, deepest: int = 20, beyond_fork: int = 20) -> list[tuple[float, list[int]]]:
    places = expandable_nodes(tree, AcceptanceModel(), deepest, beyond_fork)
    return [(chance, tree.tail(node) or []) for chance, node in places]


def _expected(node: TreeNode, chance: float, recent: float, tail: list[int]) -> Iterator[tuple[float, list[int]]]:
    calibration = AcceptanceModel().model
    if node.children is None and node.token != END:
        yield chance, tail
    for rank, child in enumerate(node.children or []):
        accepted = calibration.chance((node.children or [])[0].confidence, recent)
        share = (1.0 - accepted) * RUNNER_UP if rank else accepted
        yield from _expected(child, chance * share, recent_after(recent, not rank), [*tail, child.token])


def test_an_empty_tree_offers_its_root() -> None:
    assert _found(_tree()) == [(1.0, [])]
    assert _found(_tree(), deepest=0) == []


def test_end_of_the_path_and_runners_up_along_it_are_offered() -> None:
    found = _found(_tree(0.9, 0.5))
    assert [tail for _, tail in found] == [[0, 0], [0, 1], [1]]
    accepted = AcceptanceModel().model.chance(0.9, 0.0)
    assert found[-1][0] == pytest.approx((1.0 - accepted) * RUNNER_UP)
    assert _found(_tree(0.9, 0.5), beyond_fork=0) == found[:1]


def test_no_node_is_deeper_than_the_limit() -> None:
    assert [tail for _, tail in _found(_tree(0.9, 0.5, 0.5), deepest=2)] == [[1]]


def test_branch_that_leaves_the_path_is_limited() -> None:
    tree = _tree(0.5)
    node = (tree.root.children or [])[1]
    for depth in range(3):
        assert [1] + [0] * depth in [tail for _, tail in _found(tree, beyond_fork=depth + 1)]
        assert [1] + [0] * depth not in [tail for _, tail in _found(tree, beyond_fork=depth)]
        tree.grow(node, Proposal(0, 0.9))
        node = (node.children or [])[0]


@given(data=st.data())
def test_each_leaf_has_the_chance_of_its_branch(data: st.DataObject) -> None:
    tree = DraftTree({END})
    for _ in range(data.draw(st.integers(0, 12))):
        open_nodes = [node for _, node in expandable_nodes(tree, AcceptanceModel(), 20, 20)]
        if not open_nodes:
            break
        confidence, token = data.draw(st.floats(0.01, 0.99)), data.draw(st.sampled_from([0, 0, 0, END]))
        tree.grow(
            data.draw(st.sampled_from(open_nodes)), Proposal(token, confidence, data.draw(st.sampled_from([None, 1])))
        )
    expected = [each for each in _expected(tree.root, 1.0, 0.0, []) if each[0] >= FLOOR]
    found = _found(tree)
    assert sorted(tail for _, tail in found) == sorted(tail for _, tail in expected)
    assert [chance for chance, _ in found] == pytest.approx(sorted((each[0] for each in expected), reverse=True))
