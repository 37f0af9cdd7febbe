"""The draft tree grows at its leaves, its root follows the text, and passed branches have no effect."""

from collections.abc import Iterator
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.node_selection import expandable_nodes
from specpair.speculation.drafting.tree import DraftTree, Proposal, TreeNode
from tests.examples import examples


def _open(tree: DraftTree) -> dict[tuple[int, ...], list[int]]:
    """Open nodes: their tails with their places."""
    return {tuple(tree.tail(node) or []): place for node, place in _placed_nodes(tree.root, []) if tree.is_open(node)}


def _placed_nodes(node: TreeNode, place: list[int]) -> Iterator[tuple[TreeNode, list[int]]]:
    """`node` and all behind it, with its place: for each step from the root, which child it is."""
    yield node, place
    for rank, child in enumerate(node.children or ()):
        yield from _placed_nodes(child, [*place, rank])


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
