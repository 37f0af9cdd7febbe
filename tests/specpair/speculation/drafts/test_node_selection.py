"""Nodes to expand: every open leaf with the chance that the text passes through it, the likeliest first."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.acceptance_model import AcceptanceModel, recent_after
from specpair.speculation.drafts.node_selection import BRANCH_FLOOR, FLOOR, SideNode, expandable_nodes, side_nodes
from specpair.speculation.drafts.tree import DraftTree, Proposal, TreeNode

RUNNER_UP = AcceptanceModel().runners_up.shares[0]
END = 9


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


SURE = 0.6


def _grown(steps: list[int]) -> DraftTree:
    """A tree in which one open node after the other was expanded: each step says which, of those that there are."""
    tree, nodes = DraftTree(set()), list[TreeNode]()
    nodes.append(tree.root)
    for step in steps:
        node = nodes.pop(step % len(nodes))
        tree.grow(node, Proposal(1, SURE, 2, further=(3,)))
        nodes += node.children or []
    return tree


def _side(tree: DraftTree, skip: int = 0, sent: int = 0) -> list[SideNode]:
    """`sent`: nodes of the likeliest path that are in flight."""
    model, path = AcceptanceModel(), tree.main()
    in_flight = {id(node) for node in path[:sent]}
    chances = [1.0, *model.path(path)]
    return [*side_nodes(tree.root, path, chances, model, skip, lambda node: id(node) in in_flight)]


def _depth(tree: DraftTree, node: TreeNode) -> int:
    return len(tree.tail(node) or [])


@given(st.lists(st.integers(0, 40), max_size=12))
def test_each_node_comes_once_behind_its_parent_and_the_likeliest_first(steps: list[int]) -> None:
    tree = _grown(steps)
    found = _side(tree)
    chances = [each.chance for each in found]
    assert chances == sorted(chances, reverse=True) and all(each >= BRANCH_FLOOR for each in chances)
    seen = {id(node) for node in [tree.root, *tree.main()]}
    for each in found:
        parent = each.node.parent and each.node.parent()
        assert id(parent) in seen and id(each.node) not in seen
        seen.add(id(each.node))


@given(st.lists(st.integers(0, 40), max_size=12))
def test_the_chances_of_a_level_are_one_at_most(steps: list[int]) -> None:
    tree = _grown(steps)
    path = tree.main()
    levels = [1.0, *AcceptanceModel().path(path)]
    for each in _side(tree):
        if each.level < len(levels):
            levels[each.level] += each.chance
    assert max(levels) <= 1.0 + 1e-9


def test_where_nothing_is_in_flight_the_level_is_the_depth() -> None:
    tree = _grown([0, 0, 1, 0])
    assert [_depth(tree, each.node) for each in _side(tree)] == [each.level for each in _side(tree)] != []


def test_behind_a_draft_in_flight_a_level_counts_from_where_the_text_leaves_it() -> None:
    """Two tokens are in flight, a third is expected to come with them: what follows another third one counts alike."""
    tree = DraftTree(set())
    node = tree.root
    for _ in range(4):
        tree.grow(node, Proposal(1, SURE, 2))
        assert node.children is not None
        node = node.children[0]
    first, _, third, _ = tree.main()
    assert first.children is not None
    other = first.children[1]  # the target's token in place of the second one
    tree.grow(other, Proposal(7, SURE, 8))
    found = {id(each.node): each for each in _side(tree, skip=3, sent=2)}
    assert other.children is not None
    behind = found[id(other.children[0])]
    assert found[id(other)].level == 3, "the pass in flight brings it"
    assert (behind.level, behind.behind) == (4, other) and behind.given == found[id(other)].chance
    assert third.children is not None
    beside = found[id(third.children[1])]
    assert (beside.level, beside.behind) == (4, third)
    assert beside.given == pytest.approx(AcceptanceModel().path(tree.main())[2])
