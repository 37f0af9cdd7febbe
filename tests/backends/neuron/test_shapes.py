"""Any number of tokens is cut into compiled widths, and padding never overwrites a valid token."""

import pytest

from backends.neuron.shapes import LENGTHS, cells_for, cells_of, kv_heads_held, padded, pieces, prompt_buckets


def test_library_finds_every_width() -> None:
    """The library bisects the list of a set, in Python's order of sets: see `tests/stand_ins/test_traps.py`."""
    assert list(set(LENGTHS)) == sorted(LENGTHS) == list(LENGTHS)
    assert 1 < LENGTHS[0] and LENGTHS[-1] < cells_for(2)


@pytest.mark.parametrize("count", range(200))
def test_pieces_cover_all_tokens_in_order(count: int) -> None:
    at = 0
    for piece in pieces(count):
        assert piece.first == at
        assert 1 <= piece.size <= piece.length
        assert piece.length in LENGTHS
        at += piece.size
    assert at == count
    assert all(piece.size == piece.length == LENGTHS[-1] for piece in pieces(count)[:-1])


@pytest.mark.parametrize(
    ("count", "widths"), [(1, [4]), (4, [4]), (5, [8]), (17, [30]), (64, [63, 4]), (140, [63, 63, 16])]
)
def test_narrowest_sufficient_width_is_used(count: int, widths: list[int]) -> None:
    assert [piece.length for piece in pieces(count)] == widths


def test_padding_is_behind_the_tokens_or_in_the_last_cell() -> None:
    assert cells_of(10, 4, 128) == [10, 11, 12, 13]
    assert cells_of(125, 8, 128) == [125, 126, 127, 127, 127, 127, 127, 127]
    for context in (2, 127, 128, 383, 4095):
        cells = cells_for(context)
        for start in range(max(1, context - 70), context):
            taken = cells_of(start, 63, cells)
            tokens = taken[: context - start]
            assert min(taken) == start
            assert max(taken) < cells
            assert len(set(tokens)) == len(tokens), "every token that fits has a cell of its own"
            assert cells - 1 not in tokens


@pytest.mark.parametrize(("context", "cells"), [(2, 128), (127, 128), (128, 256), (384, 512), (4095, 4096)])
def test_slot_has_more_cells_than_tokens(context: int, cells: int) -> None:
    assert cells_for(context) == cells


@pytest.mark.parametrize(
    ("batch", "cells", "buckets"),
    [(512, 4096, [128, 512, 4096]), (64, 512, [128, 512]), (700, 512, [128, 512]), (8, 128, [128])],
)
def test_widest_prompt_bucket_is_the_cache(batch: int, cells: int, buckets: list[int]) -> None:
    assert prompt_buckets(batch, cells) == buckets


@pytest.mark.parametrize(
    ("heads", "kv_heads", "cores", "held"),
    [
        *((32, 8, cores, held) for cores, held in ((1, 8), (2, 8), (8, 8), (10, 10), (12, 36), (16, 16), (32, 32))),
        *((28, 4, cores, held) for cores, held in ((2, 4), (8, 8), (12, 12), (24, 24), (32, 32))),
        *((24, 8, cores, held) for cores, held in ((3, 24), (6, 24), (10, 10), (12, 24), (16, 16), (24, 24))),
        *((12, 12, cores, held) for cores, held in ((1, 12), (8, 16), (24, 24))),
        *((9, 3, cores, held) for cores, held in ((2, 10), (3, 3), (4, 4), (6, 6), (8, 16))),
        *((72, 24, cores, held) for cores, held in ((16, 80), (24, 24), (32, 32))),
        *((2, 1, cores, held) for cores, held in ((1, 1), (2, 2))),
        *((14, 2, cores, held) for cores, held in ((24, 24),)),
    ],
)
def test_every_core_holds_at_least_one_head(heads: int, kv_heads: int, cores: int, held: int) -> None:
    assert kv_heads_held(heads, kv_heads, cores) == held


def test_padded_appends_zeros() -> None:
    assert padded([7, 8], 4) == [7, 8, 0, 0]
    assert padded([7, 8], 2) == [7, 8]
