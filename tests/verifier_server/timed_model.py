"""A toy model whose passes take modelled time, and its clock."""

import random
import threading
import time
from collections.abc import Callable, Sequence

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.engines.errors import EngineFailure


class PassingTime:
    """A clock in seconds: real time, and the modelled times of what has run. Thread-safe."""

    def __init__(self, real: Callable[[], float] = time.perf_counter) -> None:
        """`real`: the real time, in seconds."""
        self._real, self._modelled, self._adding = real, 0.0, threading.Lock()

    def __call__(self) -> float:
        return self._real() + self._modelled

    def add(self, seconds: float) -> None:
        with self._adding:
            self._modelled += seconds


class TimedModel(ScriptedBackend):
    """A toy model whose passes, and steps of its head, take modelled time and fail at a rate of each."""

    clock: PassingTime
    pass_time = token_time = head_time = 0.0  # seconds
    failing = head_failing = 0.0
    chance: random.Random

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.clock.add(self.pass_time + self.token_time * sum(len(entry.tokens) for entry in batch))
        if self.chance.random() < self.failing:
            raise EngineFailure("a device went away")
        return super()._forward(batch)

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        self.clock.add(self.head_time)
        if self.chance.random() < self.head_failing:
            raise EngineFailure("the head went away")
        return super()._extend_head(batch)
