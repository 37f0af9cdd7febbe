"""The traps of transformers-neuronx, sprung: what a caller without care gets from the stand-in, as from the library."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.conftest import TinyModel, reference_logits

torch = pytest.importorskip("torch", reason="the stand-in computes with torch: `make test-torch`")

from tests.stand_ins.transformers_neuronx import (  # noqa: E402 - after torch was found
    ContinuousBatchingConfig,
    LlamaForSampling,
    NeuronConfig,
)

pytestmark = pytest.mark.engine("torch")

ROWS, SLOTS = 3, 256
IDS = [5 + 7 * number % 250 for number in range(SLOTS)]
Make = Callable[..., "Caller"]


class Caller:
    """A model and shorthands for passing it plain lists."""

    def __init__(self, made: TinyModel, lengths: Sequence[int], batch_sizes: Any, **options: Any) -> None:
        self.made = made
        batching = NeuronConfig(continuous_batching=ContinuousBatchingConfig(max_num_seqs=ROWS))
        kept = {"n_positions": [SLOTS], "batch_size": ROWS, "context_length_estimate": [128, SLOTS], **options}
        self.model = LlamaForSampling.from_pretrained(str(made.folder), neuron_config=batching, **kept)
        self.model.enable_speculative_decoder(list(lengths), batch_sizes)
        self.model.to_neuron()

    def prompt(self, row: int, ids: Sequence[int], slots: Sequence[int] | None = None, **extra: Any) -> Any:
        return self.model.forward(*self._tensors(row, ids, slots or range(len(ids))), **extra)[0].numpy()

    def speculate(self, row: int, ids: Sequence[int], slots: Sequence[int], length: Any = 4) -> Any:
        return self.model.speculative_forward(*self._tensors(row, ids, slots), speculation_length=length)[:, :, 0]

    def key(self, slot: int, row: int) -> Any:
        """What the first layer holds there."""
        assert self.model.device is not None
        return self.model.device.caches[0, 0, slot, row].clone()

    def expected(self, ids: Sequence[int]) -> Any:
        return reference_logits(self.made.config, self.made.weights, ids)

    def _tensors(self, row: int, ids: Sequence[int], slots: Sequence[int]) -> tuple[Any, Any, Any]:
        return torch.tensor([list(ids)]), torch.tensor([list(slots)]), torch.tensor([row])


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(lengths: Sequence[int] = (4, 8), batch_sizes: Any = 1, **options: Any) -> Caller:
        return Caller(TinyModel(tmp_path / "tiny"), lengths, batch_sizes, **options)

    return made


def close(left: Any, right: Any) -> bool:
    return bool(np.abs(np.asarray(left) - np.asarray(right)).max() < 1e-4)


def test_with_care_it_says_what_the_weights_say(make: Make) -> None:
    caller = make()
    expected = caller.expected(IDS[:14])
    assert close(caller.prompt(1, IDS[:10]), expected[9])
    assert close(caller.speculate(1, IDS[10:14], range(10, 14)), expected[10:])


def test_a_number_is_no_speculation_length_and_the_width_decides(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:10])
    right = caller.speculate(0, IDS[10:14], range(10, 14), length=4)
    assert close(caller.speculate(0, IDS[10:14], range(10, 14), length=99), right)
    with pytest.raises(KeyError):
        caller.speculate(0, IDS[10:14], range(10, 14), length=(4, 1))
    with pytest.raises(TypeError):
        caller.speculate(0, IDS[10:14], range(10, 14), length=None)


def test_lengths_are_searched_in_the_order_of_a_set(make: Make) -> None:
    caller = make(lengths=(4, 8, 16, 32, 64))
    caller.prompt(0, IDS[:10])
    with pytest.raises(RuntimeError, match="64"):
        caller.speculate(0, IDS[10:74], range(10, 74), length=64)


def test_what_is_not_padded_gets_logits_of_pads_and_pads_in_the_middle_of_a_text(make: Make) -> None:
    """They go to the last slot of the widest prompt, here 127; with a prompt as wide as the cache, to the cache's."""
    for widest in (128, SLOTS):
        caller = make(context_length_estimate=[widest])
        caller.prompt(0, IDS[:120])
        for at in range(120, 136, 4):
            caller.speculate(0, IDS[at : at + 4], range(at, at + 4))
        assert caller.speculate(0, IDS[136:139], range(136, 139)).shape[0] == 4
        further = caller.speculate(0, IDS[139:143], range(139, 143))
        assert close(further, caller.expected(IDS[:143])[139:]) == (widest == SLOTS)


def test_a_slot_before_the_first_hides_what_lies_between(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:20])
    right = caller.expected(IDS[:21])[20]
    assert close(caller.speculate(0, [IDS[20], 0, 0, 0], (20, 21, 22, 23))[0], right)
    assert close(caller.speculate(0, [IDS[20], 0, 0, 0], (20, *[SLOTS - 1] * 3))[0], right)
    assert not close(caller.speculate(0, [IDS[20], 0, 0, 0], (20, 3, 3, 3))[0], right)


def test_a_first_slot_of_zero_means_a_prompt_whatever_was_called(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:10])
    before = caller.key(3, 0)
    caller.speculate(0, IDS[20:24], (0, 1, SLOTS - 1, SLOTS - 1))  # the slots for the pads count for nothing
    assert not close(caller.key(3, 0), before)


def test_a_prompt_cannot_be_gone_on_with(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS[:10])
    with pytest.raises(ValueError, match="shouldn't be smaller than estimate"):
        caller.prompt(0, IDS[10:14], slots=range(10, 14))


def test_the_last_token_of_a_prompt_is_the_one_with_the_greatest_slot(make: Make) -> None:
    caller = make()
    assert close(caller.prompt(0, [IDS[0], 0], slots=(0, 0)), caller.expected(IDS[:1])[0])
    assert not close(caller.prompt(0, [IDS[0], 0], slots=(0, 1)), caller.expected(IDS[:1])[0])


def test_a_single_token_spoils_every_other_row(make: Make) -> None:
    caller = make()
    for row in range(ROWS):
        caller.prompt(row, IDS[row : row + 10])
    before = [caller.key(0, row) for row in range(ROWS)]
    assert close(caller.prompt(1, IDS[11:12], slots=[10]), caller.expected(IDS[1:12])[10])
    assert [close(caller.key(0, row), before[row]) for row in range(ROWS)] == [False, True, False]


def test_names_that_it_does_not_know_are_passed_over(make: Make) -> None:
    caller = make(n_position=[64], tp_degre=8)
    assert (caller.model.token_buckets, caller.model.config.tp_degree) == ([SLOTS], 2)
    assert close(caller.prompt(0, IDS[:10], position=3), caller.expected(IDS[:10])[9])
    with pytest.raises(TypeError, match="position"):
        caller.model.speculative_forward(*caller._tensors(0, IDS[:4], range(4)), position=3)  # type: ignore[call-arg]


def test_the_two_configurations_know_their_names() -> None:
    with pytest.raises(AssertionError, match="rows"):
        ContinuousBatchingConfig(max_num_seqs=3, rows=3)
    with pytest.raises(AssertionError, match="batching"):
        NeuronConfig(batching=None)


def test_programs_are_for_batches_of_all_rows_unless_told(make: Make) -> None:
    caller = make(batch_sizes=None)
    caller.prompt(0, IDS[:10])
    with pytest.raises(AssertionError, match=r"invalid batch size for speculative forward \(1 not in \[3, 3\]\)"):
        caller.speculate(0, IDS[10:14], range(10, 14))


def test_what_cannot_be_built_is_refused(make: Make) -> None:
    with pytest.raises(AssertionError, match="invalid batch_size_for_shared_caches"):
        make(batch_size=1)
    with pytest.raises(AssertionError, match="cannot be more than 256"):
        make(context_length_estimate=[512])
    with pytest.raises(NotImplementedError, match="n_active_tokens=256"):
        make(lengths=(4, SLOTS))


def test_a_slot_beyond_the_cache_has_no_program(make: Make) -> None:
    caller = make()
    caller.prompt(0, IDS)
    with pytest.raises(StopIteration):
        caller.speculate(0, IDS[:4], range(SLOTS - 2, SLOTS + 2))
    with pytest.raises(AssertionError, match="invalid input prompt length"):
        caller.prompt(0, [*IDS, 5])
