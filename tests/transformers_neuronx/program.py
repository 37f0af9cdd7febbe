"""Records what the library writes with a scribe as a program: a list of operations that can be run and hashed.

This stands for `torch_neuronx.pyhlo`. In that package `scribe.f32[2, 3].Add(x, y)` appends one operation of HLO, the
compiler's input, to a module, and gives a name to its result. Here it appends one `Operation`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

TYPES = {  # the scribe's name of a number type: the name of the same type in PyTorch
    "pred": "bool",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}


Sizes = tuple[int, ...]


class PrimitiveType:
    """`xla_data_pb2.PrimitiveType`: names of number types in capitals. A value is the scribe's name of the type."""

    TUPLE = "tuple"
    F8E4M3FN = "f8e4m3fn"

    @staticmethod
    def Name(element_type: str) -> str:  # noqa: N802 - the name in the package
        return element_type.upper()


for _name in TYPES:
    setattr(PrimitiveType, _name.upper(), _name)


@dataclass(frozen=True, slots=True)
class ShapeProto:
    """The sizes and the number type of a value; or, of a tuple, those of its parts."""

    dimensions: Sizes
    element_type: str
    tuple_shapes: tuple["ShapeProto", ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its name, its result's type and sizes, the numbers of its operands, and what else it says."""

    name: str
    dtype: str
    sizes: Sizes
    operands: Sizes
    options: dict[str, Any]


@dataclass
class Program:
    """A module of HLO. Operations are in an order in which they can be run; the last one is the tuple of results."""

    operations: list[Operation] = field(default_factory=list)
    # The number of an operation whose result must replace a parameter in its memory: the number of that parameter.
    aliases: dict[int, int] = field(default_factory=dict)
    name: str = "program"

    @property
    def host_program_shape(self) -> "Program":
        return self

    @property
    def parameters(self) -> list[ShapeProto]:
        """Shapes of the parameters, by their numbers."""
        found = {each.options["parameter_number"]: each for each in self.operations if each.name == "Parameter"}
        return [ShapeProto(found[number].sizes, found[number].dtype) for number in range(len(found))]

    @property
    def result(self) -> ShapeProto:
        parts = [self.operations[number] for number in self.results]
        return ShapeProto((), PrimitiveType.TUPLE, tuple(ShapeProto(each.sizes, each.dtype) for each in parts))

    @property
    def results(self) -> Sizes:
        """The numbers of the operations whose values the program returns."""
        last = self.operations[-1]
        return last.operands if last.name == "Tuple" else (len(self.operations) - 1,)

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name in the package
        """The program in JSON: equal for equal programs, so that its hash names a compiled file."""
        listed = [[each.name, each.dtype, each.sizes, each.operands, each.options] for each in self.operations]
        return json.dumps({"operations": listed, "aliases": list(self.aliases.items())}, sort_keys=True).encode()

    @classmethod
    def parsed(cls, content: bytes) -> "Program":
        """The program that `SerializeToString` gave."""
        read = json.loads(content)
        operations = [
            Operation(name, dtype, tuple(sizes), tuple(operands), options)
            for name, dtype, sizes, operands, options in read["operations"]
        ]
        return cls(operations, dict(read["aliases"]))


class HloShape:
    """A number type with sizes, from which an operation is written; and, once it is written, the operation's result.

    Any capitalised attribute is an operation: `shape.Add(x, y)`.
    """

    def __init__(self, scribe: "HloScribe", dtype: str, sizes: Sizes, number: int | None = None) -> None:
        self.scribe, self.sizes, self.number = scribe, sizes, number
        self._dtype = dtype

    @property
    def dtype(self) -> "HloType":
        return HloType(self.scribe, self._dtype)

    @property
    def shape_proto(self) -> ShapeProto:
        return ShapeProto(self.sizes, self._dtype)

    def set_alias_to(self, parameter: "HloShape", must: bool = False) -> None:
        """Say that the result replaces the parameter in its memory."""
        assert must and parameter.number is not None and self.number is not None
        self.scribe.alias(self.number, parameter.number)

    def __getattr__(self, name: str) -> Callable[..., "HloShape"]:
        if not name[0].isupper():
            raise AttributeError(name)
        return lambda *operands, **options: self.scribe.write(name, self._dtype, self.sizes, operands, options)


class HloType(HloShape):
    """A number type, which is also the shape of a single number. `f32[2, 3]` is a shape with these sizes."""

    def __init__(self, scribe: "HloScribe", dtype: str) -> None:
        super().__init__(scribe, dtype, ())

    def __getitem__(self, sizes: int | Sequence[int]) -> HloShape:
        listed = (sizes,) if isinstance(sizes, int) else tuple(int(size) for size in sizes)
        return HloShape(self.scribe, self._dtype, listed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HloType) and other._dtype == self._dtype

    def __hash__(self) -> int:
        return hash(self._dtype)


class HloScribe:
    """Calls a function that writes a program. `HloScribe(…)(function).module_proto` is the program."""

    def __init__(self, serialize_torch: object) -> None:
        """`serialize_torch` is for constants of the package's own kind, which the library does not use for Llama."""
        self.module_proto = Program()
        self._current = self.module_proto
        for name in TYPES:
            setattr(self, name, HloType(self, name))

    def __call__(self, function: Callable[["HloScribe"], HloShape]) -> "HloScribe":
        function(self)
        return self

    def tuple(self, *shapes: HloShape) -> HloShape:
        return HloShape(self, PrimitiveType.TUPLE, ())

    def write(
        self, name: str, dtype: str, sizes: Sizes, operands: Sequence[HloShape], options: dict[str, Any]
    ) -> HloShape:
        """Append an operation, and return its result."""
        numbers = []
        for operand in operands:
            assert operand.number is not None, f"{name}: an operand is a shape without a value"
            numbers.append(operand.number)
        plain = {key: self._plain(value) for key, value in options.items()}
        self._current.operations.append(Operation(name, dtype, sizes, tuple(numbers), plain))
        return HloShape(self, dtype, sizes, len(self._current.operations) - 1)

    def alias(self, result: int, number: int) -> None:
        """Record that the operation `result` replaces the parameter that the operation `number` is."""
        self._current.aliases[result] = self._current.operations[number].options["parameter_number"]

    def _plain(self, value: Any) -> Any:
        """An option's value in JSON. A function that combines two numbers becomes the name of what it does."""
        if callable(value):
            return self._combination(value)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, dict):
            if "shape" in value:  # a literal: its data under the name of their type, in bytes if they are halves
                (data,) = (each for key, each in value.items() if key != "shape")
                return list(data) if isinstance(data, bytes) else data.tolist()
            return {key: self._plain(each) for key, each in value.items()}
        return list(value) if isinstance(value, tuple) else value

    def _combination(self, function: Callable[["HloScribe"], HloShape]) -> str:
        """The name of the operation that `function` writes of its two parameters; 'second' if it returns the second."""
        outer, self._current = self._current, Program()
        try:
            result = function(self)
            assert result.number is not None
            written = self._current.operations[result.number]
        finally:
            self._current = outer
        if written.name == "Parameter":
            assert written.options["parameter_number"] == 1
            return "second"
        return written.name
