"""The draft tree grows at its leaves, its root follows the text, and passed branches have no effect."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.tree import DraftTree, Proposal, TreeNode
from tests.examples import examples

END = 9


def _tree() -> tuple[DraftTree, dict[str, TreeNode]]:
    """1 (or 2), then 3 (or 4) behind 1, then 5 behind 3; 6 behind 2."""
    tree = DraftTree({END})
    tree.grow(tree.root, Proposal(1, 0.9, 2))
    one, two = tree.root.children or []
    tree.grow(one, Proposal(3, 0.8, 4))
    tree.grow(two, Proposal(6, 0.7))
    three, four = one.children or []
    tree.grow(three, Proposal(5, 0.6))
    (six,), (five,) = two.children or [], three.children or []
    return tree, {"1": one, "2": two, "13": three, "14": four, "26": six, "135": five}


def _open(tree: DraftTree) -> dict[tuple[int, ...], list[int]]:
    """Open nodes: their tails with their places."""
    return {tuple(tree.tail(node) or []): place for node, place in _placed_nodes(tree.root, []) if tree.is_open(node)}


def _placed_nodes(node: TreeNode, place: list[int]) -> Iterator[tuple[TreeNode, list[int]]]:
    """`node` and all behind it, with its place: for each step from the root, which child it is."""
    yield node, place
    for rank, child in enumerate(node.children or ()):
        yield from _placed_nodes(child, [*place, rank])


def test_new_tree_is_open_at_its_root_only() -> None:
    tree = DraftTree({END})
    assert _open(tree) == {(): []} and tree.main() == [] and tree.tail(tree.root) == []


def test_main_path_is_the_path_of_first_choices() -> None:
    tree, nodes = _tree()
    assert tree.main() == [nodes["1"], nodes["13"], nodes["135"]]
    assert [node.token for node in tree.main()] == [1, 3, 5]


def test_runner_up_gets_the_remaining_confidence() -> None:
    _, nodes = _tree()
    assert nodes["1"].confidence == 0.9 and nodes["2"].confidence == pytest.approx(0.1)


def test_every_leaf_is_open() -> None:
    tree, _ = _tree()
    assert _open(tree) == {(1, 3, 5): [0, 0, 0], (1, 4): [0, 1], (2, 6): [1, 0]}


@pytest.mark.parametrize("name", ["1", "2", "13", "14", "26", "135"])
def test_tail_leads_from_the_root_to_the_node(name: str) -> None:
    tree, nodes = _tree()
    assert tree.tail(nodes[name]) == [int(token) for token in name]


def test_root_advances_to_a_drafted_token_and_keeps_its_branch() -> None:
    tree, nodes = _tree()
    assert [node.token for node in tree.advance(1)] == [1, 2]
    assert tree.root is nodes["1"] and tree.main() == [nodes["13"], nodes["135"]]
    assert tree.tail(nodes["135"]) == [3, 5] and _open(tree) == {(3, 5): [0, 0], (4,): [1]}


def test_root_advances_to_a_runner_up_and_keeps_its_branch() -> None:
    tree, nodes = _tree()
    tree.advance(2)
    assert tree.main() == [nodes["26"]] and _open(tree) == {(6,): [0]}


def test_token_that_was_not_drafted_empties_the_tree() -> None:
    tree, _ = _tree()
    assert [node.token for node in tree.advance(7)] == [1, 2]
    assert tree.main() == [] and _open(tree) == {(): []}
    assert tree.advance(8) == [], "nothing was drafted in its place"


def test_node_on_a_passed_branch_has_no_tail() -> None:
    tree, nodes = _tree()
    tree.advance(1)
    assert tree.tail(nodes["2"]) is None and tree.tail(nodes["26"]) is None
    tree.advance(4)
    assert tree.tail(nodes["13"]) is None and tree.tail(nodes["135"]) is None


def test_late_prediction_has_no_effect() -> None:
    tree, nodes = _tree()
    tree.advance(1)
    before = _open(tree)
    tree.grow(nodes["26"], Proposal(1, 0.5, 2))
    assert _open(tree) == before


def test_nothing_is_drafted_behind_an_end_token() -> None:
    tree = DraftTree({END})
    tree.grow(tree.root, Proposal(END, 0.9, 2))
    end, two = tree.root.children or []
    assert not tree.is_open(end) and tree.is_open(two)
    assert _open(tree) == {(2,): [1]}


def test_committed_end_token_does_not_close_the_root() -> None:
    """The prompt may end with an end token, as chats do."""
    tree = DraftTree({END})
    tree.advance(END)
    assert tree.is_open(tree.root) and _open(tree) == {(): []}


@examples(100)
@given(data=st.data())
def test_tree_equals_a_dictionary_of_tails_to_choices(data: st.DataObject) -> None:
    """The model is a dictionary from tails to first choices and runners-up."""
    token = st.integers(0, 3)
    tree, known = DraftTree({3}), dict[tuple[int, ...], list[int]]()
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.booleans()):
            choices = data.draw(st.lists(token, min_size=1, max_size=2, unique=True))
            open_nodes = [node for node, _ in _placed_nodes(tree.root, []) if tree.is_open(node)]
            if not open_nodes:
                continue
            node = data.draw(st.sampled_from(open_nodes))
            known[tuple(tree.tail(node) or ())] = choices
            tree.grow(node, Proposal(choices[0], 0.5, choices[1] if len(choices) > 1 else None))
        else:
            taken = data.draw(token)
            assert [node.token for node in tree.advance(taken)] == known.get((), [])
            reachable = taken in known.get((), [])
            known = {tail[1:]: next_ for tail, next_ in known.items() if reachable and tail[:1] == (taken,)}
        ends = {(*tail, choice) for tail, choices in known.items() for choice in choices} | {()}
        assert set(_open(tree)) == {tail for tail in ends if tail not in known and tail[-1:] != (3,)}
        for tail, place in _open(tree).items():
            assert [known[tail[:depth]][rank] for depth, rank in enumerate(place)] == list(tail)
        main: tuple[int, ...] = ()
        while main in known:
            main = (*main, known[main][0])
        assert tuple(node.token for node in tree.main()) == main
