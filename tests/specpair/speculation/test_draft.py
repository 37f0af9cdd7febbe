"""Drafts as values: what of a draft goes beyond a text, what was accepted, what contains what; chains and trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.draft import NO_DRAFT, Draft
from tests.specpair.speculation.trees import paths, trees

IDS = st.lists(st.integers(0, 2), max_size=6)


@given(IDS, IDS)
def test_of_a_chain_the_rest_behind_the_text_is_fresh(ids: list[int], committed: list[int]) -> None:
    draft = Draft.chain(3, ids)
    assert (draft.ids, len(draft), draft.end) == (ids, len(ids), 3 + len(ids))
    same = ids[: len(committed)] == committed
    assert draft.fresh(committed) == (Draft.chain(3 + len(committed), ids[len(committed) :]) if same else None)
    accepted = draft.accepted(committed)
    assert ids[:accepted] == committed[:accepted]
    assert accepted == min(len(ids), len(committed)) or ids[accepted] != committed[accepted]


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


def test_a_chain_has_what_each_token_was_drawn_from() -> None:
    draft = Draft.chain(0, [1, 2], [{1: 1.0}, {2: 0.5, 3: 0.5}])
    assert [each.probs for each in draft] == [{1: 1.0}, {2: 0.5, 3: 0.5}]
    with pytest.raises(ValueError, match="zip"):
        Draft.chain(0, [1, 2], [{1: 1.0}])
