"""Drafts as values: what of a draft goes beyond a text, what was accepted, what contains what; chains and trees."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.draft import NO_DRAFT, Draft, depths, leaves
from specpair.speculation.draft import paths as rows_of_paths
from tests.specpair.speculation.trees import paths, trees

IDS = st.lists(st.integers(0, 2), max_size=6)


@given(IDS, IDS)
def test_of_a_chain_the_rest_behind_the_text_is_fresh(ids: list[int], committed: list[int]) -> None:
    draft = Draft.chain(3, ids)
    assert (draft.ids, len(draft), draft.left) == (ids, len(ids), [*range(len(ids), -1, -1)])
    same = ids[: len(committed)] == committed
    assert draft.fresh(committed) == (Draft.chain(3 + len(committed), ids[len(committed) :]) if same else None)
    accepted = draft.accepted(committed)
    assert ids[:accepted] == committed[:accepted]
    assert accepted == min(len(ids), len(committed)) or ids[accepted] != committed[accepted]


@given(trees())
def test_of_a_tree_less_is_left_with_each_token_of_its_likeliest_chain(draft: Draft) -> None:
    chain = draft.likeliest().ids
    rests = [draft.fresh(chain[:kept]) for kept in range(len(chain) + 1)]
    assert draft.left == [None if rest is None else len(rest) for rest in rests]


@given(trees(), st.data())
def test_tree_is_confirmed_by_its_likeliest_chain_alone(draft: Draft, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(paths(draft.tokens)))
    chain = draft.likeliest().ids
    assert draft.confirmed([*path, 99]) == (path[: len(chain)] == chain)
    assert draft.confirmed([*chain, 99]) and not (chain and draft.confirmed([*chain[:-1], 99]))


@given(trees(), st.data())
def test_what_a_pass_judged_tells_what_was_committed_before_it(draft: Draft, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(paths(draft.tokens)))
    before = data.draw(st.integers(0, len(path)))
    rest = draft.fresh(path[:before])
    assert rest is not None
    assert len(draft.fresh(path[: draft.before(path, len(rest))]) or ()) <= len(rest)
    assert draft.before(path, len(rest)) <= before


@given(trees(), st.data())
def test_of_a_tree_what_follows_the_text_is_fresh(draft: Draft, data: st.DataObject) -> None:
    committed = data.draw(st.sampled_from(paths(draft.tokens)))
    fresh = draft.fresh(committed)
    assert fresh is not None and fresh.position == draft.position + len(committed)
    assert draft.accepted([*committed, 99]) == len(committed)
    assert draft.fresh([*committed, 99]) is None
    rest = [path[len(committed) :] for path in paths(draft.tokens) if path[: len(committed)] == committed]
    assert paths(fresh.tokens) == rest, "in the same order"
    kept = {tuple(path): each for path, each in zip(paths(draft.tokens)[1:], draft, strict=True)}
    for path, each in zip(paths(fresh.tokens)[1:], fresh, strict=True):
        assert each._replace(parent=0) == kept[(*committed, *path)]._replace(parent=0), "with all that is known of it"


@given(trees(), trees(), st.integers(0, 7))
def test_a_draft_contains_another_if_it_has_all_its_paths(one: Draft, other: Draft, most: int) -> None:
    assert one.contains(other) == all(path in paths(one.tokens) for path in paths(other.tokens))
    assert one.contains(one.first(most)) and one.contains(NO_DRAFT)
    assert paths(one.first(most).tokens) == paths(one.tokens)[: most + 1] and one.first(None) is one


@given(trees(), st.integers(-1, 5))
def test_of_a_tree_what_is_within_a_depth(draft: Draft, depth: int) -> None:
    kept = draft.within(depth)
    assert paths(kept.tokens) == [path for path in paths(draft.tokens) if len(path) <= max(depth, 0)]
    assert kept.position == draft.position


@given(trees(), st.integers(0, 5))
def test_of_a_tree_as_much_as_has_so_few_leaves(draft: Draft, most: int) -> None:
    def leaves(some: Draft) -> int:
        return len(some) - len({at - each.parent for at, each in enumerate(some)} - {-1})

    kept = draft.with_leaves(most)
    assert kept == draft.first(len(kept)) and leaves(kept) <= most
    assert len(kept) == len(draft) or leaves(draft.first(len(kept) + 1)) == most + 1
    assert draft.with_leaves(None) == draft


@given(trees())
def test_the_likeliest_chain_takes_the_first_of_those_that_follow_each(draft: Draft) -> None:
    expected = list[int]()
    while behind := [path for path in paths(draft.tokens) if path[:-1] == expected and path]:
        expected = behind[0]
    assert (draft.likeliest().ids, draft.likeliest().is_chain) == (expected, True)
    assert draft.is_chain == (draft.likeliest() == draft)
    assert draft.with_parents(draft.parents) == draft


@st.composite
def shapes(draw: st.DrawFn) -> list[int]:
    return [draw(st.integers(1, at + 1)) for at in range(draw(st.integers(0, 12)))]


def walked(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node -= parents[node]
    return path[::-1]


@given(shapes())
def test_paths_depths_and_leaves_are_those_of_a_walk(parents: list[int]) -> None:
    each = [walked(parents, node) for node in range(len(parents))]
    assert [np.flatnonzero(row).tolist() for row in rows_of_paths(parents)] == each
    assert depths(parents) == [len(path) for path in each]
    assert leaves(parents) == [node for node in range(len(parents)) if not any(node in path[:-1] for path in each)]
