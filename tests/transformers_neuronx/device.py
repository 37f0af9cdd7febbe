"""Stands for the closed part of torch_neuronx: tensors in the memory of cores, loaded programs, and their execution."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.transformers_neuronx.operations import run
from tests.transformers_neuronx.program import TYPES, Program

_NEFF = b"NEFF:"  # what a compiled program begins with; behind it is the program itself

Tensor = Any  # torch.Tensor: PyTorch is an optional package


class CoreTensor:
    """A tensor with one part in the memory of each core. `shape` is that of one part."""

    device = SimpleNamespace(type="xla")

    def __init__(self, parts: Tensor) -> None:
        """`parts` has the axis of cores first. A slice of a tensor shares its memory."""
        self.parts = parts

    @property
    def shape(self) -> Any:
        return self.parts.shape[1:]

    @property
    def dtype(self) -> Any:
        return self.parts.dtype

    def write(self, parts: Tensor) -> None:
        assert parts.shape == self.parts.shape, (tuple(parts.shape), tuple(self.parts.shape))
        self.parts.copy_(parts)


class ParallelTensorSet:
    """The tensors that a program reads, or those that it writes."""

    def __init__(self, names: Sequence[str], cores: int) -> None:
        self.names, self.cores = names, cores
        self.tensors: list[CoreTensor] = []

    def init(self) -> None:
        self.tensors.clear()

    def add(self, number: int, tensor: CoreTensor) -> None:
        assert number == len(self.tensors) < len(self.names)
        assert len(tensor.parts) == self.cores
        self.tensors.append(tensor)


class ParallelModel:
    """A compiled program for some cores."""

    def __init__(self, neff: bytes, cores: int, first: int, count: int) -> None:
        assert neff.startswith(_NEFF), "not a compiled program"
        self.program = Program.parsed(neff.removeprefix(_NEFF))
        self._random = np.random.default_rng(len(neff))
        self.loaded = False

    def load(self) -> None:
        self.loaded = True

    def run(self, inputs: ParallelTensorSet, outputs: ParallelTensorSet) -> None:
        """Run the program on `inputs`, and write its results to `outputs`."""
        program = self.program
        assert self.loaded
        given = [(tuple(each.shape), each.dtype) for each in inputs.tensors]
        asked = [(each.dimensions, getattr(torch, TYPES[each.element_type])) for each in program.parameters]
        assert given == asked, f"tensors do not fit the program: {given}, {asked}"
        with torch.no_grad():
            values = run(program.operations, [each.parts for each in inputs.tensors], self._random)
            for number, output in zip(program.results, outputs.tensors, strict=True):
                if number in program.aliases:
                    shared = inputs.tensors[program.aliases[number]]
                    assert shared.parts.data_ptr() == output.parts.data_ptr(), "an alias has a memory of its own"
                output.write(values[number])


class ParallelExecutor:
    """Runs a program with inputs from, and results to, the host's memory."""

    def __init__(
        self,
        model: ParallelModel,
        inputs: ParallelTensorSet,
        outputs: ParallelTensorSet,
        given: Sequence[CoreTensor],
        returned: Sequence[CoreTensor],
    ) -> None:
        self.model, self.inputs, self.outputs, self.given, self.returned = model, inputs, outputs, given, returned

    def run(self, given: Sequence[Tensor], cores: int) -> list[Tensor]:
        """The results of the first `cores` cores, one behind the other; of all for -1, and nothing for 0."""
        for into, tensor in zip(self.given, given, strict=True):
            into.write(tensor.expand(into.parts.shape))
        self.model.run(self.inputs, self.outputs)
        if cores == 0:
            return []
        return [torch.cat(list(each.parts[: None if cores < 0 else cores])) for each in self.returned]


def _to_cores(tensors: Sequence[Tensor]) -> CoreTensor:
    return CoreTensor(torch.stack([each.detach() for each in tensors]))


def _slice(tensor: CoreTensor, dim: int, start: int, end: int, step: int) -> CoreTensor:
    assert dim == 0 and step == 1
    return CoreTensor(tensor.parts[:, start:end])


OPS = SimpleNamespace(  # torch.ops.neuron
    _init_neuron=lambda: None,
    _parallel_to_neuron=_to_cores,
    _parallel_from_neuron=lambda tensor: [part.clone() for part in tensor.parts],
    _parallel_write_neuron=lambda tensor, parts: tensor.write(torch.stack(list(parts))),
    _parallel_slice_neuron=_slice,
    _parallel_run_neuron=lambda model, inputs, outputs: model.run(inputs, outputs),
    _parallel_executor_run=lambda executor, given, cores: executor.run(given, cores),
)
CLASSES = SimpleNamespace(  # torch.classes.neuron
    ParallelTensorSet=ParallelTensorSet, ParallelModel=ParallelModel, ParallelExecutor=ParallelExecutor
)


def neuron_xla_compile(module: bytes, flags: str, **options: Any) -> bytes:
    """The compiler: a compiled program is the program itself."""
    return _NEFF + module
