"""A verifier whose target and whose scheduler's clock are slower by the same factor, `CAPACITY_DILATION`.

What the verifier's own programs take is not dilated: divided out, they look faster by that factor. Nor are the passes
that the verifier tries out before its engine starts: what it learns of them goes by the slow clock, too. Every later
pass is noted in the file `CAPACITY_PASSES`: its cost and the time it took, in milliseconds, dilated both.
"""

import os
import time
from collections.abc import Sequence

from fastapi import FastAPI

from backends.base import Entry, Logits
from simulation.capacity_model import Target
from simulation.paced import Cost, Paced
from verifier_server.app import create_app
from verifier_server.settings import from_environment

ROWS, CONTEXT = 64, 4096


class Dilated(Paced):
    """The toy target at `dilation` times its cost, from the moment the engine first asks for the time."""

    def __init__(self, cost: Cost, dilation: float, file: str) -> None:
        super().__init__(Target(rows=ROWS, context_length=CONTEXT), cost)
        self._slow, self._dilation = cost.dilated(dilation), dilation
        self._notes = open(file, "w", encoding="ascii", buffering=1)  # noqa: SIM115 for as long as the process lives

    def clock(self) -> float:
        """Seconds, as slow as everything is."""
        self.cost = self._slow
        return time.perf_counter() / self._dilation

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        began = time.perf_counter()
        logits = super()._forward(batch)
        if self.cost is self._slow:
            self._notes.write(f"{self.cost.of(batch):.3f} {1e3 * (time.perf_counter() - began):.3f} {len(batch)}\n")
        return logits


def application() -> FastAPI:
    """A verifier by the environment."""
    variables = (os.environ[name] for name in ("PACED_TARGET", "CAPACITY_DILATION", "CAPACITY_PASSES"))
    cost, dilation, file = variables
    backend = Dilated(Cost.parse(cost), float(dilation), file)
    return create_app(from_environment(), backend, clock=backend.clock)
