"""What each operation of a program computes, in PyTorch.

The cores that share a model run the same program in lockstep. So every value has one axis more than its operation says,
the first: one entry for each core. Numbers of axes in an operation's options are therefore too small by one.

Where HLO leaves the result open, or a chip would read or write what is not there, no help is given: of several updates
of one cell, one chosen by chance stays, and an index beyond the end raises IndexError.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.transformers_neuronx.program import TYPES, Operation

Tensor = Any  # torch.Tensor: PyTorch is an optional package


@dataclass(frozen=True, slots=True)
class Call:
    """An operation about to be run."""

    operation: Operation
    cores: int
    random: np.random.Generator

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result, with the axis of cores."""
        return (self.cores, *self.operation.sizes)

    @property
    def dtype(self) -> Any:
        return getattr(torch, TYPES[self.operation.dtype])

    def option(self, name: str) -> Any:
        return self.operation.options[name]

    def axes(self, name: str = "dimensions") -> list[int]:
        """The axes that an option names."""
        return [axis + 1 for axis in self.operation.options.get(name, ())]


def constant(call: Call) -> Tensor:
    options = call.operation.options
    if "literal" in options:
        data = torch.tensor(options["literal"], dtype=call.dtype).reshape(call.operation.sizes)
        return data.expand(call.shape)
    return torch.full(call.shape, options["constant_value"], dtype=call.dtype)


def iota(call: Call) -> Tensor:
    (axis,) = call.axes()
    return _along(torch.arange(call.shape[axis], dtype=call.dtype), axis, len(call.shape)).expand(call.shape)


def broadcast(call: Call, x: Tensor) -> Tensor:
    shape = [call.cores] + [1] * len(call.operation.sizes)
    for axis, size in zip(call.axes(), x.shape[1:], strict=True):
        shape[axis] = size
    return x.reshape(shape).expand(call.shape)


def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(0, *call.axes())


def cut(call: Call, x: Tensor) -> Tensor:
    kept = [slice(each["start"], each["limit"], each.get("stride", 1)) for each in call.option("slice_dimensions")]
    return x[(slice(None), *kept)]


def concatenate(call: Call, *parts: Tensor) -> Tensor:
    return torch.cat(parts, dim=call.axes()[0])


def compare(call: Call, x: Tensor, y: Tensor) -> Tensor:
    names = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}
    return getattr(torch, names[call.option("comparison_direction")])(x, y)


def divide(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def dot(call: Call, left: Tensor, right: Tensor) -> Tensor:
    """Axes of the result: those of batches, the left one's others, the right one's others."""
    numbers = call.option("dot_dimension_numbers")

    def named(side: str, kind: str) -> list[int]:
        return [axis + 1 for axis in numbers.get(f"{side}_{kind}_dimensions", ())]

    of_left = list(range(left.ndim))
    of_right = [0, *range(left.ndim, left.ndim + right.ndim - 1)]
    batches, summed = named("lhs", "batch"), named("lhs", "contracting")
    for kind, mine in (("batch", batches), ("contracting", summed)):
        for theirs, axis in zip(named("rhs", kind), mine, strict=True):
            of_right[theirs] = axis
    single = [axis for axis in of_left[1:] if axis not in batches + summed]
    others = [axis for axis in of_right if axis >= left.ndim]
    return torch.einsum(left, of_left, right, of_right, [0, *batches, *single, *others])


def reduce(call: Call, x: Tensor, initial: Tensor) -> Tensor:
    """The initial value is that of the operation's identity."""
    combine = {"Add": torch.sum, "Maximum": torch.amax, "Minimum": torch.amin}[call.option("to_apply")]
    return combine(x, dim=call.axes()).to(x.dtype)


def gather(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Whole slices of one axis only, in the order of the indices: all that the library does for Llama."""
    (axis,) = (each + 1 for each in call.option("gather_dimension_numbers")["collapsed_slice_dims"])
    _check(index, x.shape[axis])
    taken = [each.index_select(axis - 1, at.reshape(-1).long()) for each, at in zip(x, index, strict=True)]
    return torch.stack(taken)


def scatter(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """Replaces entries along the first axis. Of several updates of one entry, any may stay."""
    assert call.option("to_apply") == "second"
    assert call.option("scatter_dimension_numbers")["inserted_window_dims"] == [0]
    _check(index, x.shape[1])
    result = x.clone()
    for core in range(call.cores):
        at = index[core].reshape(-1).long().numpy()
        order = call.random.permutation(len(at))
        places, first = np.unique(at[order], return_index=True)
        result[core, torch.from_numpy(places)] = updates[core, torch.from_numpy(order[first])]
    return result


def custom_call(call: Call, x: Tensor, *others: Tensor) -> Tensor:
    """Kernels that the compiler has built in."""
    target = call.option("custom_call_target")
    if target == "AwsNeuronTransferWithStaticRing":
        return x
    if target == "AwsNeuronRmsNorm":
        weight, epsilon = others
        axis = int(call.option("backend_config")) + 1
        scale = torch.rsqrt(x.square().mean(dim=axis, keepdim=True) + epsilon.reshape(-1, *[1] * (x.ndim - 1)))
        shape = [call.cores, *(size if number == axis else 1 for number, size in enumerate(x.shape) if number)]
        return (x * scale * weight.float().reshape(shape)).to(call.dtype)
    raise NotImplementedError(f"the kernel {target} is not in the interpreter")


def all_reduce(call: Call, x: Tensor) -> Tensor:
    result = torch.empty_like(x)
    for group in call.option("replica_groups"):
        assert call.option("to_apply") == "Add"
        result[group] = x[group].sum(dim=0, keepdim=True).to(x.dtype)
    return result


def all_gather(call: Call, x: Tensor) -> Tensor:
    (axis,) = call.axes()
    result = torch.empty(call.shape, dtype=x.dtype)
    for group in call.option("replica_groups"):
        result[group] = torch.cat([x[core] for core in group], dim=axis - 1)
    return result


def _elementwise(name: str) -> Callable[..., Tensor]:
    function = getattr(torch, name)
    return lambda call, *operands: function(*operands)


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "Constant": constant,
    "Iota": iota,
    "Broadcast": broadcast,
    "Reshape": lambda call, x: x.reshape(call.shape),
    "Convert": lambda call, x: x.to(call.dtype),
    "Transpose": transpose,
    "Slice": cut,
    "Concatenate": concatenate,
    "Compare": compare,
    "Divide": divide,
    "Dot": dot,
    "Reduce": reduce,
    "Gather": gather,
    "Scatter": scatter,
    "CustomCall": custom_call,
    "AllReduce": all_reduce,
    "AllGather": all_gather,
    "Select": lambda call, where, x, y: torch.where(where, x, y),
    **{
        name: _elementwise(function)
        for name, function in {
            "Add": "add",
            "Subtract": "sub",
            "Multiply": "mul",
            "Maximum": "maximum",
            "Minimum": "minimum",
            "And": "logical_and",
            "Exp": "exp",
            "Sin": "sin",
            "Cos": "cos",
            "Sqrt": "sqrt",
            "Rsqrt": "rsqrt",
            "Logistic": "sigmoid",
        }.items()
    },
}


def run(operations: Sequence[Operation], parameters: Sequence[Tensor], random: np.random.Generator) -> list[Tensor]:
    """The values of all operations. Parameters have the axis of cores. Raises where a shape or type is wrong."""
    values: list[Tensor] = []
    for operation in operations:
        call = Call(operation, len(parameters[0]), random)
        if operation.name == "Tuple":
            break
        if operation.name == "Parameter":
            value = parameters[call.option("parameter_number")]
        elif operation.name in OPERATIONS:
            value = OPERATIONS[operation.name](call, *(values[number] for number in operation.operands))
        else:
            raise NotImplementedError(f"the operation {operation.name} is not in the interpreter")
        assert tuple(value.shape) == call.shape, (operation, tuple(value.shape))
        assert value.dtype == call.dtype, (operation, value.dtype)
        values.append(value)
    return values


def _check(index: Tensor, size: int) -> None:
    if int(index.min()) < 0 or int(index.max()) >= size:
        raise IndexError(f"index {int(index.max())} into an axis of {size}: what a chip does is not defined")


def _along(x: Tensor, axis: int, count: int) -> Tensor:
    """The one-dimensional `x` as the axis `axis` of `count` axes."""
    return x.reshape([-1 if number == axis else 1 for number in range(count)])
