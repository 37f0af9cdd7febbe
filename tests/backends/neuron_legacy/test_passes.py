"""Any number of tokens is cut into compiled widths, and padding never overwrites a valid token."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.neuron_legacy.passes import Programs, cells_for, cells_of, parked, programs_for
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions

VERIFY = (4, 13, 30)


def programs(context: int = 4095, batch_tokens: int = 512, slots: int = 4, **options: Any) -> Programs:
    return programs_for(LoadOptions(model=Path("/model"), **options), slots, context, batch_tokens)


def test_usual_programs() -> None:
    usual = programs()
    assert usual == Programs(4, (4096,), (128, 512), (128, 512), VERIFY)
    assert usual.batches == [1, 4]
    assert usual.count == 2 + 2 + 3 * 2
    assert programs(slots=1).count == 2 + 2 + 3


@pytest.mark.parametrize(
    ("context", "batch_tokens", "prompts", "continuations"),
    [
        (4095, 512, (128, 512), (128, 512)),
        (511, 700, (128, 512), (128,)),
        (127, 8, (128,), ()),
        (255, 64, (128,), (128,)),
        (8191, 8192, (128, 2048), (128, 2048)),
    ],
)
def test_no_width_but_a_prompt_s_is_as_wide_as_the_cache(
    context: int, batch_tokens: int, prompts: tuple[int, ...], continuations: tuple[int, ...]
) -> None:
    made = programs(context, batch_tokens)
    assert (made.prompts, made.continuations) == (prompts, continuations)


def test_every_verify_width_has_a_pass_over_all_slots() -> None:
    made = programs(slots=40)
    assert (made.batches, made.count) == ([1, 40], 2 + 2 + 3 * 2)
    assert [made.verify_width(count) for count in (1, 4, 5, 30)] == [4, 4, 13, 30]


def test_spans_are_whole_cells_and_end_with_the_cache() -> None:
    assert programs(compile_spans=(1000, 4000, 9000)).spans == (1024, 4096)
    assert programs(compile_spans=(1024, 2048)).spans == (1024, 2048, 4096)
    several = programs(compile_spans=(1024,))
    assert several.count == 2 + 2 * (2 + 3 * 2)


def test_widths_are_the_user_s() -> None:
    assert programs(compile_widths=(3, 12)).verify == (3, 12)
    for widths in ((1, 4), (4, 128), (200,)):
        with pytest.raises(ModelLoadError, match="neuron_legacy verifies 2 to 127 tokens in a pass") as caught:
            programs(compile_widths=widths)
        assert caught.value.setting == "compile_widths"


def test_widths_that_the_library_would_not_find_are_refused() -> None:
    """It bisects the list of a set, in Python's order of sets."""
    assert list(set(VERIFY)) == list(VERIFY)
    assert programs(compile_widths=(4, 8, 16, 30, 63)).verify[-1] == 63
    with pytest.raises(
        ModelLoadError, match="compile_widths 4,8,16,32,64: transformers-neuronx bisects a set"
    ) as caught:
        programs(compile_widths=(4, 8, 16, 32, 64))
    assert caught.value.setting == "compile_widths"


@given(st.integers(0, 1500), st.data())
def test_pieces_cover_all_tokens_in_order(count: int, data: st.DataObject) -> None:
    logits_from = data.draw(st.integers(0, count))
    made = programs()
    at = 0
    pieces = made.pieces(count, logits_from)
    for piece in pieces:
        assert piece.first == at
        assert 1 <= piece.size <= piece.width
        assert piece.width in (made.continuations if piece.last_only else made.verify)
        at += piece.size
        if piece.last_only:
            assert at <= logits_from + 1, "the logits of its last token are all that a continuation returns"
    assert at == count
    assert [piece.last_only for piece in pieces] == sorted((piece.last_only for piece in pieces), reverse=True)


@pytest.mark.parametrize(
    ("count", "logits_from", "widths"),
    [
        (1, 0, [4]),
        (5, 0, [13]),
        (17, 17, [30]),
        (64, 0, [30, 30, 4]),
        (64, 63, [128]),
        (64, 64, [128]),
        (200, 199, [512]),
        (600, 600, [512, 128]),
        (200, 150, [512, 30, 30]),
    ],
)
def test_fewest_passes_of_the_narrowest_sufficient_widths(count: int, logits_from: int, widths: list[int]) -> None:
    assert [piece.width for piece in programs().pieces(count, logits_from)] == widths


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


def test_parked_slot_keeps_its_tokens() -> None:
    assert parked(0, 4, 128) == [1, 2, 3, 4], "not from cell 0 on: that would be a prompt"
    assert parked(9, 4, 128) == [9, 10, 11, 12]
    assert parked(127, 4, 128) == [127] * 4
