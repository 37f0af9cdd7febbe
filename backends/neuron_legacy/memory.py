"""The memory of trn1's and inf2's NeuronCores: a Llama's share of each, and the degree at which it fits.

The sizes follow from how transformers-neuronx splits and pads a model: heads and rows of matrices are rounded up to a
multiple of the degree, each core holds at least one key-value head, and the embeddings stay in the host's memory.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from backends.machine import gib
from backends.neuron import PRODUCT, instance_type
from specpair.engines.errors import ModelLoadError

# The share of a core's memory for weights and caches. The rest is for the programs, their buffers and the runtime. A
# guess: it has not been measured on a device.
_SHARE: Final = 0.9
_BYTES_A_CORE: Final = 16 * 2**30  # two cores share the 32 GiB of a chip, on trn1 and inf2
# Degrees whose collectives the library supports, by family. The others either hang or are refused by the runtime.
_DEGREES: Final = {"trn1": (1, 2, 8, 32), "inf2": (1, 2, 4, 8, 24)}
_CORES: Final = {
    **{"trn1.2xlarge": 2, "trn1.32xlarge": 32, "trn1n.32xlarge": 32},
    **{"inf2.xlarge": 2, "inf2.8xlarge": 2, "inf2.24xlarge": 12, "inf2.48xlarge": 24},
}


@dataclass(frozen=True, slots=True)
class Chip:
    """This machine's chips. `name`: its instance type, or a description."""

    name: str
    degrees: tuple[int, ...]  # numbers of cores that may share a model, ascending


def this_chip(product: Path = PRODUCT) -> Chip:
    """The chips of this machine. Raises ModelLoadError if the library does not run on them."""
    name = instance_type(product)
    family = name.partition(".")[0].removesuffix("n")
    if family in _DEGREES:
        cores = _CORES.get(name, max(_DEGREES[family]))
        return Chip(name, tuple(degree for degree in _DEGREES[family] if degree <= cores))
    if family.startswith("trn"):
        raise ModelLoadError(
            f"neuron_legacy runs on trn1 and inf2, this machine is {name}: use the torch backend with device neuron"
        )
    every = sorted({degree for degrees in _DEGREES.values() for degree in degrees})
    return Chip("transformers-neuronx", tuple(every))


@dataclass(frozen=True, slots=True)
class LlamaSizes:
    """A model's memory.

    `config`: its config.json.
    `number_bytes`: of a weight and of a cached number.
    """

    config: Mapping[str, Any]
    number_bytes: int
    slots: int
    cells: int  # of each slot

    def weight_bytes(self, degree: int) -> int:
        """Bytes of weights on each of `degree` cores."""
        hidden, layers, width = self._of("hidden_size"), self._of("num_hidden_layers"), self._width
        attention = hidden * width * (2 * round_up(self._heads, degree) + 2 * self._kv_heads_held(degree)) // degree
        feed_forward = 3 * hidden * round_up(self._of("intermediate_size"), degree) // degree
        norms = (2 * layers + 1) * hidden * 4  # in float32, on every core
        head = hidden * round_up(self._of("vocab_size"), degree) // degree
        return (layers * (attention + feed_forward) + head) * self.number_bytes + norms

    def kv_bytes(self, degree: int) -> int:
        """Bytes of the KV cache of all slots on all of `degree` cores."""
        numbers = 2 * self._of("num_hidden_layers") * self._kv_heads_held(degree) * self._width
        return numbers * self.cells * self.slots * self.number_bytes

    def core_bytes(self, degree: int) -> int:
        """Bytes of weights and caches on each of `degree` cores."""
        return self.weight_bytes(degree) + self.kv_bytes(degree) // degree

    @property
    def _width(self) -> int:
        return self._of("hidden_size") // self._heads

    @property
    def _heads(self) -> int:
        return self._of("num_attention_heads")

    def _kv_heads_held(self, degree: int) -> int:
        return kv_heads_held(self._heads, int(self.config.get("num_key_value_heads") or self._heads), degree)

    def _of(self, name: str) -> int:
        return int(self.config[name])


class CoreMemory:
    """The memory of the cores of this process, all of whose models must have the same degree."""

    def __init__(self) -> None:
        # By model: its degree, and what it takes.
        self._held: WeakKeyDictionary[object, tuple[int, LlamaSizes]] = WeakKeyDictionary()

    @property
    def degree(self) -> int | None:
        """The number of cores that each model is split over; None: no model is loaded."""
        return next((degree for degree, _ in self._held.values()), None)

    def reserve(self, model: object, sizes: LlamaSizes, chip: Chip, asked: int | None) -> int:
        """Reserve memory for `model` on the cores of `chip`. Returns its degree: `asked`; None: the least that fits.

        Raises ModelLoadError if the model does not fit, or not at this degree.
        """
        degree = self.degree if asked is None else asked
        if degree is not None and degree not in chip.degrees:
            degrees = ", ".join(map(str, chip.degrees))
            raise ModelLoadError(
                f"tensor_parallel {degree}: {chip.name} supports {degrees} cores for a model", "tensor_parallel"
            )
        if self.degree is not None and degree != self.degree:
            raise ModelLoadError(
                f"tensor_parallel {degree}: a model of this process is split over {self.degree} cores, and "
                "transformers-neuronx needs the same number for all",
                "tensor_parallel",
            )
        rooms = {each: self._room(each) for each in chip.degrees}
        fitting = [each for each, room in rooms.items() if sizes.core_bytes(each) <= room]
        if degree is None:
            degree = fitting[0] if fitting else max(chip.degrees)
        if degree not in fitting:
            what = "all models of this process fit" if self._held else "it fits"
            advice = f"{what} at {fitting[0]}" if fitting else "lower slots or context"
            weights, caches = gib(sizes.weight_bytes(degree)), gib(sizes.kv_bytes(degree) // degree)
            needs = f"{weights} GiB for weights and {caches} GiB for {sizes.slots} slots of {sizes.cells} tokens"
            raise ModelLoadError(
                f"tensor_parallel {degree}: each core needs {needs}, {gib(rooms[degree])} GiB are there: {advice}",
                "tensor_parallel",
            )
        self._held[model] = degree, sizes
        return degree

    def release(self, model: object) -> None:
        """Release the memory of `model`, if any."""
        self._held.pop(model, None)

    def _room(self, degree: int) -> int:
        """Bytes free on each core if all models were split over `degree` cores; below 0 if they did not fit."""
        return int(_SHARE * _BYTES_A_CORE) - sum(sizes.core_bytes(degree) for _, sizes in self._held.values())


def kv_heads_held(heads: int, kv_heads: int, cores: int) -> int:
    """The number of key-value heads in the caches of all cores, copies and padding included.

    Every core holds equally many, at least one. Where the heads cannot be dealt out, the library copies each: as often
    as suffices for one a core if the query heads can be dealt out to match, else once for each query head (library:
    utils.get_qkv_padding).
    """
    held = round_up(kv_heads, cores)
    if kv_heads in (heads, held):
        return held
    query_heads = round_up(heads, cores)  # with those added as padding
    if cores % kv_heads == 0 and (query_heads - heads) % kv_heads == 0:
        return cores
    if query_heads * kv_heads == heads * cores:  # a core's query heads are those of one key-value head
        return held
    return query_heads


def round_up(count: int, divisor: int) -> int:
    """The smallest multiple of `divisor` that is at least `count`."""
    return math.ceil(count / divisor) * divisor
