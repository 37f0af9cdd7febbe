"""The chance of acceptance is learnt from similar outcomes, and the nodes with the best chance are expanded first."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafting.acceptance_model import AcceptanceModel, Calibration, RunnersUp, recent_after
from specpair.speculation.drafting.node_selection import BRANCH_FLOOR, FLOOR, SideNode, expandable_nodes, side_nodes
from specpair.speculation.drafting.tree import DraftTree, Proposal, TreeNode

CONFIDENCE = st.floats(0.0, 1.0)
NODE = st.builds(TreeNode, st.just(1), CONFIDENCE, st.none(), second_opinion=st.floats(-1.0, 1.0))
OUTCOMES = st.lists(st.tuples(CONFIDENCE, st.booleans()), max_size=60)


def _taught(outcomes: list[tuple[float, bool]]) -> Calibration:
    calibration = Calibration()
    for number, (confidence, accepted) in enumerate(outcomes):
        calibration.learn(confidence, accepted)
        if number % 3 == 2:
            calibration.fit()
    calibration.fit()
    return calibration


def _drawn(seed: int, count: int, *chances: tuple[float, float]) -> list[tuple[float, bool]]:
    """Random outcomes of draft tokens of several kinds, each a pair of confidence and chance of acceptance."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, len(chances), count)
    return [
        (chances[kind][0], bool(luck < chances[kind][1])) for kind, luck in zip(kinds, rng.random(count), strict=True)
    ]


@pytest.mark.parametrize("confidences", [(0.9, 0.3), (0.99, 0.9), (0.3, 0.1), (0.3, 0.9)], ids=str)
def test_chance_follows_the_outcomes_at_each_confidence(confidences: tuple[float, float]) -> None:
    calibration = _taught(_drawn(0, 400, (confidences[0], 0.9), (confidences[1], 0.2)))
    typical_run = 2 * 0.55 - 1.0
    assert calibration.chance(confidences[0], typical_run) == pytest.approx(0.9, abs=0.12)
    assert calibration.chance(confidences[1], typical_run) == pytest.approx(0.2, abs=0.15)


def test_chance_depends_on_the_last_outcome_where_outcomes_come_in_runs() -> None:
    """Eight accepted tokens alternate with eight rejected ones."""
    runs = _taught([(0.5, number // 8 % 2 == 0) for number in range(200)])
    assert runs.chance(0.5, 1.0) > 0.7 > 0.3 > runs.chance(0.5, -1.0)


@given(outcomes=OUTCOMES, nodes=st.lists(NODE, max_size=6), ahead=st.integers(0, 4))
def test_path_chance_is_the_product_of_its_tokens_chances(
    outcomes: list[tuple[float, bool]], nodes: list[TreeNode], ahead: int
) -> None:
    calibration = _taught(outcomes)
    path = calibration.path(nodes, ahead)
    assert len(path) == len(nodes) + ahead
    chance, recent = 1.0, calibration.recent
    for found, node in zip(path, nodes, strict=False):
        chance *= calibration.chance(node.confidence, recent, node.second_opinion)
        recent = recent_after(recent, True)
        assert found == pytest.approx(chance)
    assert all(0.0 <= after <= before <= 1.0 for before, after in zip([1.0, *path], path, strict=False))


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
