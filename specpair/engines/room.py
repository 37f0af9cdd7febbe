"""What a machine has for a model of an engine, which can be told before the model is there."""

from typing import NamedTuple


class Room(NamedTuple):
    """`free`: bytes of memory that are free where the engine puts a model."""

    free: int
    weight: float | None = None  # bytes of a number of the weights there; None: as many as in the file
    cached: float = 2.0  # bytes of a number in the KV cache
