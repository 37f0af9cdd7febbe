"""The traps of transformers-neuronx: the stand-in treats a careless caller as the library's real source does."""

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.conftest import TinyModel, reference_logits

torch = pytest.importorskip("torch", reason="the stand-in computes with torch: `make test-torch`")

from tests.stand_ins.neuron import standing_in  # noqa: E402 - after torch was found
from tests.transformers_neuronx import source  # noqa: E402

SLOTS, CELLS = 3, 256
IDS = [5 + 7 * number % 250 for number in range(CELLS)]
Make = Callable[..., "Caller"]


class Caller:
    """A model of `library`, with helpers that take plain lists."""

    def __init__(self, library: Any, made: TinyModel, lengths: Sequence[int], batch_sizes: Any, **options: Any) -> None:
        self.made = made
        batching = library.NeuronConfig(continuous_batching=library.ContinuousBatchingConfig(max_num_seqs=SLOTS))
        given = {"n_positions": [CELLS], "batch_size": SLOTS, "context_length_estimate": [128, CELLS], **options}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's: lazy modules, key-value heads that are copied
            self.model = library.LlamaForSampling.from_pretrained(str(made.folder), neuron_config=batching, **given)
            self.model.enable_speculative_decoder(list(lengths), batch_sizes)
        self.model.to_neuron()

    def prompt(self, slot: int, ids: Sequence[int], cells: Sequence[int] | None = None, **extra: Any) -> Any:
        return self.model.forward(*self._tensors(slot, ids, cells or range(len(ids))), **extra)[0].numpy()

    def speculate(self, slot: int, ids: Sequence[int], cells: Sequence[int], length: Any = 4) -> Any:
        return self.model.speculative_forward(*self._tensors(slot, ids, cells), speculation_length=length)[:, :, 0]

    def key(self, cell: int, slot: int) -> Any:
        """The key in a cell of a slot, in the first layer, on the first core."""
        if hasattr(self.model, "device"):
            return self.model.device.caches[0, 0, cell, slot].clone()
        cache = self.model.decoder_lm_head.layers[0].attn_k_cache[SLOTS]
        return sys.modules["transformers_neuronx.ops"].parallel_cpu(cache)[0][cell, slot]

    def expected(self, ids: Sequence[int]) -> Any:
        return reference_logits(self.made.config, self.made.weights, ids)

    def _tensors(self, slot: int, ids: Sequence[int], cells: Sequence[int]) -> tuple[Any, Any, Any]:
        return torch.tensor([list(ids)]), torch.tensor([list(cells)]), torch.tensor([slot])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(standing_in, id="stand-in", marks=pytest.mark.engine("torch")),
        pytest.param(source.library, id="real source", marks=pytest.mark.engine("tnx")),
    ],
)
def library(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param():
        yield importlib.import_module("transformers_neuronx")


@pytest.fixture
def make(library: Any, tmp_path: Path) -> Make:
    def made(lengths: Sequence[int] = (4, 8), batch_sizes: Any = 1, **options: Any) -> Caller:
        return Caller(library, TinyModel(tmp_path / "tiny"), lengths, batch_sizes, **options)

    return made


def close(left: Any, right: Any) -> bool:
    return bool(np.abs(np.asarray(left) - np.asarray(right)).max() < 1e-4)


def test_careful_caller_gets_the_reference_logits(make: Make) -> None:
    caller = make()
    expected = caller.expected(IDS[:14])
    assert close(caller.prompt(1, IDS[:10]), expected[9])
    assert close(caller.speculate(1, IDS[10:14], range(10, 14)), expected[10:])


def test_speculation_length_is_ignored_in_favour_of_the_width(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:10])
    right = caller.speculate(0, IDS[10:14], range(10, 14), length=4)
    assert close(caller.speculate(0, IDS[10:14], range(10, 14), length=99), right)
    with pytest.raises(KeyError):
        caller.speculate(0, IDS[10:14], range(10, 14), length=(4, 1))
    with pytest.raises(KeyError):
        caller.speculate(0, IDS[10:14], range(10, 14), length=None)


def test_lengths_are_bisected_in_set_order(make: Make) -> None:
    caller = make(lengths=(4, 8, 16, 32, 64))
    caller.prompt(0, IDS[:10])
    with pytest.raises(RuntimeError, match="64"):
        caller.speculate(0, IDS[10:74], range(10, 74), length=64)


def test_library_pads_into_the_last_cell_of_the_widest_prompt(make: Make) -> None:
    """Here that is cell 127, in the middle of a text; with a prompt as wide as the cache, the cache's last cell."""
    for widest in (128, CELLS):
        caller = make(context_length_estimate=[widest])
        caller.prompt(0, IDS[:120])
        for at in range(120, 136, 4):
            caller.speculate(0, IDS[at : at + 4], range(at, at + 4))
        assert caller.speculate(0, IDS[136:139], range(136, 139)).shape[0] == 4
        further = caller.speculate(0, IDS[139:143], range(139, 143))
        assert close(further, caller.expected(IDS[:143])[139:]) == (widest == CELLS)


def test_padding_cell_before_the_start_hides_the_cells_between(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:20])
    right = caller.expected(IDS[:21])[20]
    assert close(caller.speculate(0, [IDS[20], 0, 0, 0], (20, 21, 22, 23))[0], right)
    assert close(caller.speculate(0, [IDS[20], 0, 0, 0], (20, *[CELLS - 1] * 3))[0], right)
    assert not close(caller.speculate(0, [IDS[20], 0, 0, 0], (20, 3, 3, 3))[0], right)


def test_first_cell_of_zero_means_a_prompt_pass(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:10])
    before = caller.key(3, 0)
    caller.speculate(0, IDS[20:24], (0, 1, CELLS - 1, CELLS - 1))  # the cells of the padding are ignored
    assert not close(caller.key(3, 0), before)


def test_prompt_cannot_be_continued_by_forward(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:10])
    with pytest.raises(ValueError, match="shouldn't be smaller than estimate"):
        caller.prompt(0, IDS[10:14], cells=range(10, 14))


def test_last_token_of_a_prompt_is_the_one_with_the_greatest_cell(make: Make) -> None:
    caller = make()
    assert close(caller.prompt(0, [IDS[0], 0], cells=(0, 0)), caller.expected(IDS[:1])[0])
    assert not close(caller.prompt(0, [IDS[0], 0], cells=(0, 1)), caller.expected(IDS[:1])[0])


def test_single_token_overwrites_cell_0_of_every_other_slot(make: Make) -> None:
    caller = make()
    for slot in range(SLOTS):
        caller.prompt(slot, IDS[slot : slot + 10])
    before = [caller.key(0, slot) for slot in range(SLOTS)]
    assert close(caller.prompt(1, IDS[11:12], cells=[10]), caller.expected(IDS[1:12])[10])
    assert [close(caller.key(0, slot), before[slot]) for slot in range(SLOTS)] == [False, True, False]


def test_unknown_keyword_arguments_are_ignored(make: Make) -> None:
    caller = make(n_position=[64], tp_degre=8)
    assert (caller.model.token_buckets, caller.model.config.tp_degree) == ([CELLS], 2)
    assert close(caller.prompt(0, IDS[:10], position=3), caller.expected(IDS[:10])[9])
    with pytest.raises(TypeError, match="position"):
        caller.model.speculative_forward(*caller._tensors(0, IDS[:4], range(4)), position=3)


def test_configurations_refuse_unknown_names(library: Any) -> None:
    with pytest.raises(AssertionError, match="rows"):
        library.ContinuousBatchingConfig(max_num_seqs=3, rows=3)
    with pytest.raises(AssertionError, match="batching"):
        library.NeuronConfig(batching=None)


def test_default_programs_are_for_batches_of_all_slots(make: Make) -> None:
    caller = make(batch_sizes=None)
    caller.prompt(0, IDS[:10])
    with pytest.raises(AssertionError, match=r"invalid batch size for speculative forward \(1 not in \[3, 3\]\)"):
        caller.speculate(0, IDS[10:14], range(10, 14))


def test_batch_of_all_slots_is_read_in_their_order(make: Make) -> None:
    """So the slots' numbers must be 0, 1, 2 and so on."""
    texts = {slot: IDS[20 * slot : 20 * slot + 10] for slot in range(SLOTS)}
    further = IDS[100:104]
    for order in ((0, 1, 2), (2, 1, 0)):
        caller = make(batch_sizes=[1, SLOTS])
        for slot, text in texts.items():
            caller.prompt(slot, text)
        logits = caller.model.speculative_forward(
            torch.tensor([further] * SLOTS), torch.tensor([list(range(10, 14))] * SLOTS), torch.tensor(order), 4
        )
        right = [
            close(logits[:, :, row], caller.expected([*texts[slot], *further])[10:]) for row, slot in enumerate(order)
        ]
        assert right == [order[row] == row for row in range(SLOTS)]


def test_batch_has_at_most_as_many_sequences_as_its_width(make: Make) -> None:
    caller = make(lengths=(2, 4), batch_sizes=[1, SLOTS])
    cells = torch.tensor([list(range(10, 14))] * SLOTS)
    for width in (2, 4):
        ids = torch.tensor([IDS[:width]] * SLOTS)
        if width < SLOTS:
            with pytest.raises(AssertionError, match="Copying tensor from host to device"):
                caller.model.speculative_forward(ids, cells[:, :width], torch.arange(SLOTS), width)
        else:
            assert caller.model.speculative_forward(ids, cells, torch.arange(SLOTS), width).shape[2] == SLOTS


def test_impossible_builds_are_refused(make: Make) -> None:
    with pytest.raises(AssertionError, match="invalid batch_size_for_shared_caches"):
        make(batch_size=1)
    with pytest.raises(AssertionError, match="cannot be more than max n_positions 256"):
        make(context_length_estimate=[512])
    with pytest.raises(NotImplementedError, match=f"n_active_tokens={CELLS + 1}"):
        make(lengths=(4, CELLS + 1))


def test_pass_as_wide_as_the_cache_is_a_prompt_pass(make: Make) -> None:
    """It attends to none of the cells, and overwrites them from the first one on."""
    caller = make(lengths=(4, CELLS))
    caller.prompt(0, IDS[:10])
    before = caller.key(3, 0)
    cells = [*range(10, CELLS), *[CELLS - 1] * 10]
    logits = caller.speculate(0, [*IDS[10:20], *[0] * (CELLS - 10)], cells, length=CELLS)
    assert not close(logits[:10], caller.expected(IDS[:20])[10:])
    assert not close(caller.key(3, 0), before)


def test_cell_beyond_the_cache_has_no_program(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS)
    with pytest.raises(StopIteration):
        caller.speculate(0, IDS[:4], range(CELLS - 2, CELLS + 2))
    with pytest.raises(AssertionError, match="invalid input prompt length"):
        caller.prompt(0, [*IDS, 5])
