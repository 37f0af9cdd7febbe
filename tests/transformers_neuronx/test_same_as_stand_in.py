"""The stand-in answers every call as the real source does: equal logits, or the same kind of error."""

import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.conftest import WORST
from tests.models.conftest import TinyModel

pytestmark = pytest.mark.engine("tnx")

SLOTS, CELLS, LENGTHS = 3, 256, (4, 8, 16)
Random = np.random.Generator
Pair = tuple[Any, Any]


class Call(NamedTuple):
    """A call of `forward`, or of `speculative_forward` with that length."""

    ids: list[list[int]]
    cells: list[list[int]]
    slots: list[int]
    length: Any = "forward"


def careful_prompt(random: Random) -> Call:
    count = int(random.integers(2, 150))
    return Call([ids(random, count)], [list(range(count))], [slot(random)])


def careful_speculation(random: Random) -> Call:
    rows = int(random.choice([1, 1, SLOTS]))
    width, starts = int(random.choice(LENGTHS)), random.integers(1, 150, rows)
    cells = [list(range(start, start + width)) for start in starts.tolist()]
    slots = list(range(SLOTS)) if rows == SLOTS else [slot(random)]
    return Call([ids(random, width) for _ in range(rows)], cells, slots, width)


def single_token(random: Random) -> Call:
    return Call([ids(random, 1)], [[int(random.integers(0, 200))]], [slot(random)])


def continued_prompt(random: Random) -> Call:
    start, count = random.integers(1, 100, 2).tolist()
    return Call([ids(random, count)], [list(range(start, start + count))], [slot(random)])


def prompt_in_disorder(random: Random) -> Call:
    """Its first cell is 0, the others are any."""
    count, below = int(random.choice([2, 50, 127, 128, 129, CELLS])), int(random.choice([20, 128, CELLS, CELLS + 9]))
    return Call([ids(random, count)], [[0, *random.integers(0, below, count - 1).tolist()]], [slot(random)])


def speculation_in_disorder(random: Random) -> Call:
    """Different cells, in any order."""
    width = int(random.choice(LENGTHS))
    return Call([ids(random, width)], [random.permutation(CELLS - 1)[:width].tolist()], [slot(random)], width)


def speculation_of_any_width(random: Random) -> Call:
    start, width = int(random.integers(0, 150)), int(random.integers(1, 40))
    length = [None, (4, 1), 4, 99][int(random.integers(0, 4))]
    return Call([ids(random, width)], [list(range(start, start + width))], [slot(random)], length)


def speculation_over_the_end(random: Random) -> Call:
    start = int(random.integers(CELLS - 12, CELLS + 3))
    return Call([ids(random, 8)], [list(range(start, start + 8))], [slot(random)], 8)


def speculation_of_rows(random: Random) -> Call:
    """Any number of rows, in any order."""
    rows = int(random.integers(1, SLOTS + 1))
    cells = [list(range(start, start + 4)) for start in random.integers(1, 150, rows).tolist()]
    return Call([ids(random, 4) for _ in range(rows)], cells, random.permutation(SLOTS)[:rows].tolist(), 4)


def prompts_of_rows(random: Random) -> Call:
    rows, count = int(random.integers(2, SLOTS + 1)), int(random.integers(2, 50))
    given = [ids(random, count) for _ in range(rows)]
    return Call(given, [list(range(count))] * rows, random.permutation(SLOTS)[:rows].tolist())


def prompt_too_long(random: Random) -> Call:
    return Call([ids(random, CELLS + 1)], [list(range(CELLS + 1))], [slot(random)])


CARELESS = (
    *(single_token, continued_prompt, prompt_in_disorder, speculation_in_disorder, speculation_of_any_width),
    *(speculation_over_the_end, speculation_of_rows, prompts_of_rows, prompt_too_long),
)


def ids(random: Random, count: int) -> list[int]:
    return random.integers(2, 260, count).tolist()


def slot(random: Random) -> int:
    return int(random.integers(0, SLOTS))


def answer(model: Any, call: Call) -> Any:
    """The logits in NumPy, or the type of the error."""
    import torch

    given = {"cache_ids": torch.tensor(call.cells), "start_ids": torch.tensor(call.slots)}
    try:
        with torch.inference_mode():
            if call.length == "forward":
                return model.forward(torch.tensor(call.ids), **given).numpy()
            return model.speculative_forward(torch.tensor(call.ids), speculation_length=call.length, **given).numpy()
    except Exception as error:
        return type(error)


def model_of(library: Any, made: TinyModel) -> Any:
    batching = library.ContinuousBatchingConfig(max_num_seqs=SLOTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's: lazy modules, key-value heads that are copied
        model = library.LlamaForSampling.from_pretrained(
            str(made.folder),
            n_positions=[CELLS],
            batch_size=SLOTS,
            tp_degree=1,
            context_length_estimate=[128, CELLS],
            neuron_config=library.NeuronConfig(continuous_batching=batching),
        )
        model.enable_speculative_decoder(list(LENGTHS), [1, SLOTS])
    model.to_neuron()
    return model


@pytest.fixture
def both(library: ModuleType, tmp_path: Path) -> Pair:
    """The same model on the real source and on the stand-in."""
    from tests.stand_ins import transformers_neuronx

    made = TinyModel(tmp_path / "tiny")
    real, stand_in = (model_of(each, made) for each in (library, transformers_neuronx))
    return real, stand_in


@pytest.mark.parametrize("kind", CARELESS, ids=lambda kind: kind.__name__)
def test_careless_calls_among_careful_ones_have_the_same_answers(
    both: Pair, record_property: Any, kind: Callable[[Random], Call]
) -> None:
    real, stand_in = both
    random = np.random.default_rng(3)
    worst = 0.0
    for number in range(50):
        write = kind if number % 2 else (careful_prompt, careful_speculation)[int(random.integers(0, 2))]
        call = write(random)
        wanted, got = answer(real, call), answer(stand_in, call)
        if isinstance(wanted, type) or isinstance(got, type):
            assert got is wanted, (call, got, wanted)
            if got is IndexError:  # the chip has no such cell: what it has written is not defined
                refill = Call([ids(random, CELLS)], [list(range(CELLS))], call.slots)
                assert not any(isinstance(answer(model, refill), type) for model in (real, stand_in))
            continue
        assert got.shape == wanted.shape, call
        worst = max(worst, float(np.abs(got - wanted).max(initial=0)))
        assert worst < 1e-4, call
    record_property(WORST, worst)
