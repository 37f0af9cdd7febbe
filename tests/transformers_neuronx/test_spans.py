"""Programs for few cells of a slot: the library takes the smallest that the highest cell of a pass fits."""

from typing import Any

import numpy as np
import pytest

from tests.conftest import WORST
from tests.transformers_neuronx.conftest import Make
from tests.transformers_neuronx.loaded import IDS

pytestmark = pytest.mark.engine("tnx")

SLOTS, CELLS, SPANS = 3, 512, (128, 256)


def spans_of(head: Any) -> list[int]:
    """The numbers of cells of the programs that are run from now on."""
    seen: list[int] = []
    run = head.program.run

    def noted(bucket: int, batch: int) -> None:
        seen.append(head.program.n_positions_list[bucket])
        run(bucket, batch)

    head.program.run = noted
    return seen


def test_highest_cell_decides_which_program_is_run(direct: Make, record_property: Any) -> None:
    model = direct(cells=CELLS, spans=SPANS, buckets=[128, CELLS], lengths=[4])
    seen = spans_of(model.model.decoder_lm_head_for_speculation[4, 1])
    wanted = model.expected(IDS[:300])
    model.prompt(1, IDS[:290])
    worst = 0.0
    for start, padding, span in (
        (20, 0, 128),
        (124, 0, 128),
        (125, 0, 256),
        (252, 0, 256),
        (253, 0, 512),
        (20, 3, 128),
        (126, 2, 256),  # for its padding alone
        (290, 0, 512),
    ):
        ids = [*IDS[start : start + 4 - padding], *[0] * padding]
        got = model.speculate([1], [ids], [range(start, start + 4)])[: 4 - padding, :, 0]
        worst = max(worst, float(np.abs(got - wanted[start : start + 4 - padding]).max()))
        assert seen[-1] == span
        model.speculate([1], [IDS[start : start + 4]], [range(start, start + 4)])  # what the padding overwrote
    record_property(WORST, worst)
    assert worst < 2e-4


def test_padding_in_the_last_cell_takes_the_widest_program(direct: Make) -> None:
    model = direct(cells=CELLS, spans=SPANS, buckets=[128, CELLS], lengths=[4])
    seen = spans_of(model.model.decoder_lm_head_for_speculation[4, 1])
    model.prompt(1, IDS[:20])
    model.speculate([1], [[*IDS[20:22], 0, 0]], [[20, 21, CELLS - 1, CELLS - 1]])
    assert seen == [CELLS]


def test_longest_text_decides_for_all_slots(direct: Make, record_property: Any) -> None:
    model = direct(cells=CELLS, spans=SPANS, buckets=[128, CELLS], lengths=[4], batch_sizes=[1, SLOTS])
    seen = spans_of(model.model.decoder_lm_head_for_speculation[4, SLOTS])
    texts = [IDS[:20], IDS[7:107], IDS[9:129]]
    for slot, text in enumerate(texts):
        model.prompt(slot, text)
    worst = 0.0
    for number in range(6):
        new = [IDS[200 + 4 * number + slot : 204 + 4 * number + slot] for slot in range(SLOTS)]
        cells = [range(len(text), len(text) + 4) for text in texts]
        logits = model.speculate(range(SLOTS), new, cells)
        texts = [[*text, *ids] for text, ids in zip(texts, new, strict=True)]
        for slot, text in enumerate(texts):
            worst = max(worst, float(np.abs(logits[:, :, slot] - model.expected(text)[-4:]).max()))
    assert seen == [128, 128, 256, 256, 256, 256]
    record_property(WORST, worst)
    assert worst < 2e-4


def test_widths_in_the_order_of_a_set_may_take_the_widest_program(direct: Make) -> None:
    """The library finds a width that is too great, and pads the cells to it before it looks for the highest one."""
    lengths = [4, 16]
    assert list(set(lengths)) == [16, 4]
    model = direct(cells=CELLS, spans=SPANS, buckets=[128, CELLS], lengths=lengths)
    seen = spans_of(model.model.decoder_lm_head_for_speculation[4, 1])
    model.prompt(1, IDS[:20])
    got = model.speculate([1], [IDS[20:24]], [range(20, 24)])
    assert np.abs(got[:, :, 0] - model.expected(IDS[:24])[20:]).max() < 2e-4
    assert seen == [CELLS]
