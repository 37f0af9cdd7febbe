"""The comparison with the reference sees what goes wrong: mistakes that this library lets pass show as wrong logits."""

from collections.abc import Callable
from typing import Any

import pytest

from backends.neuron_legacy.model import cut_no_inputs
from tests.transformers_neuronx.conftest import Load, Make
from tests.transformers_neuronx.loaded import IDS, Loaded

pytestmark = pytest.mark.engine("tnx")

WRONG = 0.1  # logits differ by more than this
CELLS = 256  # of a slot of 200 tokens


def with_cells(loaded: Loaded, change: Callable[[Any, int], Any]) -> Loaded:
    """Let `change` replace the cells of each speculative pass. It gets them, and the first one's number."""
    speculate = loaded.model.speculative_forward

    def changed(ids: Any, cache_ids: Any, **options: Any) -> Any:
        return speculate(ids, cache_ids=change(cache_ids.clone(), int(cache_ids[0, 0])), **options)

    loaded.model.speculative_forward = changed
    return loaded


def test_unchanged_passes_are_right(load: Load) -> None:
    assert with_cells(load(slots=1), lambda cells, start: cells).walk(40) < 2e-4


def test_padding_before_the_start_is_seen(load: Load) -> None:
    def earlier(cells: Any, start: int) -> Any:
        cells[:, 2:] = max(start - 1, 0)
        return cells

    assert with_cells(load(slots=1), earlier).walk(40) > WRONG


def test_tokens_in_one_cell_are_seen(load: Load) -> None:
    """Of two tokens for one cell, either may stay."""

    def together(cells: Any, start: int) -> Any:
        cells[:, 2:] = cells[:, 1:2]
        return cells

    assert with_cells(load(slots=1), together).walk(40) > WRONG


def test_positions_off_by_one_are_seen(load: Load) -> None:
    assert with_cells(load(slots=1), lambda cells, start: (cells + 1).clamp(max=CELLS - 1)).walk(40) > WRONG


def test_single_token_pass_is_seen_in_other_slots(direct: Make) -> None:
    """The backend leaves the program for it out."""
    model = direct(lengths=[4])
    for slot in range(3):
        model.prompt(slot, IDS[slot : slot + 10])
    model.prompt(1, IDS[30:31])  # one token: at cell 0 of slot 1
    texts = [IDS[:10], IDS[30:31], IDS[2:12]]
    wrong = []
    for slot, text in enumerate(texts):
        cells = range(len(text), len(text) + 4)
        logits = model.speculate([slot], [IDS[20:24]], [cells])[:, :, 0]
        wrong.append(abs(logits - model.expected([*text, *IDS[20:24]])[len(text) :]).max() > WRONG)
    assert wrong == [True, False, True]


def test_pass_of_fewer_tokens_than_slots_fails_if_inputs_are_cut(direct: Make) -> None:
    model = direct(slots=6, lengths=[4], batch_sizes=[1, 6])
    cells = [range(1, 5)] * 6
    with pytest.raises(AssertionError, match="Copying tensor from host to device"):
        model.speculate(range(6), [IDS[:4]] * 6, cells)
    cut_no_inputs(model.model)
    assert model.speculate(range(6), [IDS[:4]] * 6, cells).shape[::2] == (4, 6)


def test_widths_in_the_order_of_a_set_are_seen(direct: Make) -> None:
    """Python's set of these widths begins with the widest, and the library bisects it."""
    lengths = [4, 8, 16, 32, 64]
    assert list(set(lengths)) != lengths
    model = direct(lengths=lengths)
    model.prompt(0, IDS[:10])
    with pytest.raises(RuntimeError):
        model.speculate([0], [IDS[10:74]], [range(10, 74)])


def test_no_room_for_padding_is_seen(direct: Make) -> None:
    """If no prompt is as wide as the cache, the library's own padding goes into the middle of a text."""
    model = direct(buckets=[128], lengths=[4, 8])
    model.prompt(0, IDS[:120])
    for start in (120, 124, 128, 132):
        model.speculate([0], [IDS[start : start + 4]], [range(start, start + 4)])
    expected = model.expected(IDS[:143])
    model.speculate([0], [IDS[136:139]], [range(136, 139)])
    after = model.speculate([0], [IDS[139:143]], [range(139, 143)])
    assert abs(after[:, :, 0] - expected[139:]).max() > WRONG
