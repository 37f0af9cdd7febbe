"""Launches feed every token of a batch once and in order, in shapes that a compiler has compiled."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backends.buckets import NARROW, Buckets, Launch
from specpair.engines.backend import Entry

SLOTS, BATCH = 9, 200


@st.composite
def batches(draw: st.DrawFn) -> list[Entry]:
    slots = draw(st.lists(st.integers(0, SLOTS - 1), unique=True, min_size=1))
    batch, room = [], BATCH
    for slot in slots:
        count = min(draw(st.sampled_from([1, 2, 5, 16, 32, 33, 64, 65, 150])), room)
        if count:
            tree = [1, 2][: draw(st.integers(0, min(2, count - 1)))]
            batch.append(Entry(slot, draw(st.integers(0, 50)), list(range(count)), draw(st.integers(0, count)), tree))
            room -= count
    return batch


WIDTHS: list[dict[str, Any]] = [{}, {"widths": (1, 8)}, {"widths": (3,), "wide": (40, 200)}, {"wide": (BATCH,)}]


@given(batches(), st.booleans(), st.sampled_from(WIDTHS))
def test_launches_feed_every_token_once_and_in_order(batch: list[Entry], compiled: bool, widths: Any) -> None:
    launches = Buckets(SLOTS, BATCH, compiled, **widths).launches(batch)
    fed: list[list[int]] = [[] for _ in batch]
    judged: list[list[int]] = [[] for _ in batch]
    for launch in launches:
        count, width = launch.shape
        assert len(launch.pieces) == len(launch.owners) <= count
        for piece, owner in zip(launch.pieces, launch.owners, strict=True):
            entry = batch[owner]
            assert piece.slot == entry.slot
            assert piece.start == entry.start + len(fed[owner]), "pieces of a slot are consecutive"
            assert len(piece.tokens) <= width
            if piece.parents:
                assert piece.parents == entry.parents and 1 <= piece.trunk and width <= NARROW
                assert len(fed[owner]) + len(piece.tokens) == len(entry.tokens), "a tree is whole, behind its trunk"
            fed[owner] += piece.tokens
            judged[owner] += piece.tokens[piece.logits_from :]
            if width > NARROW:
                assert count == 1 and len(piece.tokens) - piece.logits_from <= NARROW
    assert fed == [list(entry.tokens) for entry in batch]
    assert judged == [list(entry.tokens[entry.logits_from :]) for entry in batch]


@given(batches(), st.sampled_from(WIDTHS))
def test_compiled_launches_use_known_shapes(batch: list[Entry], widths: Any) -> None:
    buckets = Buckets(SLOTS, BATCH, compiled=True, **widths)
    assert {launch.shape for launch in buckets.launches(batch)} <= set(buckets.shapes())


@given(batches())
def test_even_launches_hold_no_padding_and_are_as_few_as_that_allows(batch: list[Entry]) -> None:
    launches = Buckets(SLOTS, BATCH, compiled=False, even=True).launches(batch)
    assert all(
        launch.shape == (len(launch.pieces), len(piece.tokens)) for launch in launches for piece in launch.pieces
    )
    firsts = [launch.shape[1] for launch in launches if launch.pieces[0].start == batch[launch.owners[0]].start]
    shared = [width for width in firsts if width <= NARROW]
    assert len(shared) == len(set(shared))


def test_a_launch_is_filled_with_short_slots() -> None:
    lengths = [60, 2, 0, 0, 0, 0]
    assert Launch((4, 1), [Entry(5, 0, [7], 0)], [0]).slots(lengths) == [5, 2, 3, 4]
    assert Launch((6, 1), [Entry(5, 0, [7], 0)], [0]).slots(lengths) == list(range(6))


def test_a_token_sees_its_path_and_what_is_before_the_tree() -> None:
    tree, chain = Entry(0, 5, [1, 2, 3, 4, 5], 0, [1, 2, 2]), Entry(2, 9, [1, 2], 0)
    launch = Launch((3, 6), [tree, chain], [0, 1])
    assert launch.seen([chain, None]) is None
    seen = launch.seen([tree, None, chain])
    assert seen is not None and seen.shape == (3, 6, 6)
    assert [np.flatnonzero(row).tolist() for row in seen[0]][:5] == [[0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 2, 4]]
    assert np.array_equal(seen[1], np.tri(6)) and np.array_equal(seen[2], np.tri(6))
