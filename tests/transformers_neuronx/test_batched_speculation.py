"""Texts of different lengths in several slots are verified together, and slots without work keep their tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from specpair.engines.backend import Entry
from tests.conftest import WORST
from tests.transformers_neuronx.conftest import Load, Make
from tests.transformers_neuronx.loaded import IDS

pytestmark = pytest.mark.engine("tnx")

SLOTS, CELLS = 3, 256


@pytest.mark.parametrize("shared", [True, False])
def test_entries_of_several_slots_share_a_batch(load: Load, record_property: Any, shared: bool) -> None:
    """Slots hold texts of 1 to 190 tokens; in each batch some are idle, first, last or in between."""
    loaded = load(one_pass_for_all=shared, slots=4, context_length=255, batch_tokens=256)
    texts: dict[int, list[int]] = {}
    lengths = [1, 40, 7, 190]
    worst = loaded.difference(
        [Entry(slot, 0, IDS[slot : slot + length], 0) for slot, length in enumerate(lengths[:3])], texts
    )
    worst = max(worst, loaded.difference([Entry(3, 0, IDS[:190], 189)], texts))
    random = np.random.default_rng(5)
    for active in ([0, 1, 2, 3], [1, 2], [3, 0], [2], [3, 2, 1], [0, 1, 3], [1, 0, 2, 3]) * 3:
        batch = []
        for slot in active:
            held = loaded.backend.length(slot)
            start = held - int(random.integers(0, min(4, held)))  # rolls back rejected tokens
            count = min(int(random.integers(1, 12)), 255 - start)
            batch.append(
                Entry(slot, start, random.integers(2, 260, count).tolist(), int(random.integers(0, count + 1)))
            )
        worst = max(worst, loaded.difference(batch, texts))
    for slot, text in texts.items():  # every token of every slot is still there
        worst = max(worst, loaded.difference([Entry(slot, len(text) - 1, text[-1:], 0)], texts))
    record_property(WORST, worst)
    assert worst < 2e-4


def test_slot_without_work_may_be_full_or_empty(load: Load, record_property: Any) -> None:
    loaded = load(context_length=255, batch_tokens=256)
    texts: dict[int, list[int]] = {}
    worst = loaded.difference([Entry(1, 0, IDS[:255], 254)], texts)
    for start in range(0, 40, 8):  # slot 0 stays empty, slot 1 is full
        worst = max(worst, loaded.difference([Entry(2, start, IDS[start : start + 8], 0)], texts))
    worst = max(worst, loaded.difference([Entry(1, 250, IDS[250:255], 0), Entry(0, 0, IDS[9:14], 0)], texts))
    record_property(WORST, worst)
    assert worst < 2e-4


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("cores", [1, 2])
def test_library_verifies_all_slots_in_one_call(direct: Make, record_property: Any, width: int, cores: int) -> None:
    """Slots without work put their padding behind their tokens, or into the last cell."""
    model = direct(slots=SLOTS, cells=CELLS, batch_sizes=[1, SLOTS], cores=cores)
    texts = [IDS[:4], IDS[50:90], IDS[100:111]]
    for slot, text in enumerate(texts):
        model.prompt(slot, text)
    worst = 0.0
    for counts in ((width, 2, 0), (0, 1, width), (1, 0, 0), (width, width, width)):
        new = [IDS[200 + slot : 200 + slot + count] for slot, count in enumerate(counts)]
        cells = [list(range(len(text), len(text) + width)) for text in texts]
        if counts[2] == 0:
            cells[2] = [CELLS - 1] * width
        padded = [[*ids, *[0] * (width - len(ids))] for ids in new]
        logits = model.speculate(range(SLOTS), padded, cells)
        for slot, count in enumerate(counts):
            texts[slot] = [*texts[slot], *new[slot]]
            wanted = model.expected(texts[slot])[len(texts[slot]) - count :]
            worst = max(worst, float(np.abs(logits[:count, :, slot] - wanted).max(initial=0)))
    record_property(WORST, worst)
    assert worst < 2e-4


def test_first_cell_of_the_first_slot_decides_for_all(direct: Make) -> None:
    """If it is 0, the call counts as a prompt: the first cells of every slot are overwritten."""
    model = direct(slots=SLOTS, cells=CELLS, batch_sizes=[1, SLOTS])
    text = IDS[50:90]
    model.prompt(1, text)
    cells: Sequence[Sequence[int]] = [list(range(4)), list(range(40, 44)), [CELLS - 1] * 4]
    model.speculate(range(SLOTS), [[0] * 4, IDS[90:94], [0] * 4], cells)
    after = model.speculate([1], [IDS[90:94]], [list(range(40, 44))])[:, :, 0]
    assert np.abs(after - model.expected([*text, *IDS[90:94]])[40:]).max() > 0.1
