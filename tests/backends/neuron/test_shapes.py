"""Every number of tokens is cut into compiled widths, and no pad falls where a token counts."""

import pytest

from backends.neuron.shapes import LENGTHS, kv_heads_held, padded, pieces, places, prompt_buckets, slots_for


def test_the_library_finds_every_width() -> None:
    """It bisects the list of a set, whose order is Python's own: see `tests/stand_ins/test_traps.py`."""
    assert list(set(LENGTHS)) == sorted(LENGTHS) == list(LENGTHS)
    assert 1 < LENGTHS[0] and LENGTHS[-1] < slots_for(2)


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
def test_the_narrowest_width_is_taken(count: int, widths: list[int]) -> None:
    assert [piece.length for piece in pieces(count)] == widths


def test_pads_lie_behind_their_tokens_and_at_the_end_in_the_last_slot() -> None:
    assert places(10, 4, 128) == [10, 11, 12, 13]
    assert places(125, 8, 128) == [125, 126, 127, 127, 127, 127, 127, 127]
    for context in (2, 127, 128, 383, 4095):
        slots = slots_for(context)
        for start in range(max(1, context - 70), context):
            taken = places(start, 63, slots)
            tokens = taken[: context - start]
            assert min(taken) == start
            assert max(taken) < slots
            assert len(set(tokens)) == len(tokens), "every token that fits has a slot of its own"
            assert slots - 1 not in tokens


@pytest.mark.parametrize(("context", "slots"), [(2, 128), (127, 128), (128, 256), (384, 512), (4095, 4096)])
def test_a_row_has_a_slot_more_than_tokens(context: int, slots: int) -> None:
    assert slots_for(context) == slots


@pytest.mark.parametrize(
    ("batch", "slots", "buckets"),
    [(512, 4096, [128, 512, 4096]), (64, 512, [128, 512]), (700, 512, [128, 512]), (8, 128, [128])],
)
def test_the_widest_prompt_is_as_wide_as_the_cache(batch: int, slots: int, buckets: list[int]) -> None:
    assert prompt_buckets(batch, slots) == buckets


@pytest.mark.parametrize(
    ("heads", "kv_heads", "cores", "held"),
    [(32, 8, 2, 8), (32, 8, 8, 8), (32, 8, 32, 32), (32, 8, 16, 16), (32, 8, 12, 36), (12, 12, 8, 16), (2, 1, 1, 1)],
)
def test_every_core_holds_a_head_at_least(heads: int, kv_heads: int, cores: int, held: int) -> None:
    assert kv_heads_held(heads, kv_heads, cores) == held


def test_padding() -> None:
    assert padded([7, 8], 4) == [7, 8, 0, 0]
    assert padded([7, 8], 2) == [7, 8]
