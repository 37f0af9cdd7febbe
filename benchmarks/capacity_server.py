"""A verifier whose target takes a multiple of its time, and whose scheduler's clock goes slower by as much.

So everything that the scheduler compares with its clock (how long it holds a pass open, when a session counts as
silent) is dilated alike. What the verifier's own programs take is not: divided out, they look faster by that factor.
The passes that the verifier tries out before its engine starts are not dilated: what it learns of them goes by the slow
clock, too. Every pass behind them is noted in a file: what it costs and what it took, in milliseconds, dilated both.

    PACED_TARGET=25,0.5,0.2 CAPACITY_DILATION=8 CAPACITY_PASSES=passes.txt VERIFIER_BACKEND=scripted \\
        .venv/bin/uvicorn benchmarks.capacity_server:app --port 8000
"""

import functools
import os
import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI

from backends.base import Backend, Entry, Logits
from simulation.capacity_model import Target
from simulation.paced import Cost, Paced
from verifier_server.app import create_app
from verifier_server.settings import from_environment

if TYPE_CHECKING:
    app: FastAPI

ROWS, CONTEXT = 64, 4096


class Dilated(Paced):
    """`backend` at `dilation` times its cost, as soon as somebody asks what time it is."""

    def __init__(self, backend: Backend, cost: Cost, dilation: float, file: Path) -> None:
        super().__init__(backend, cost)
        self._slow = Cost(*(dilation * part for part in astuple(cost)))
        self._dilation = dilation
        self._notes = file.open("w", encoding="ascii", buffering=1)

    def clock(self) -> float:
        """Seconds, as slow as everything is. The engine asks from its start on."""
        self.cost = self._slow
        return time.perf_counter() / self._dilation

    def close(self) -> None:
        super().close()
        self._notes.close()

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        began = time.perf_counter()
        logits = super()._forward(batch)
        if self.cost is self._slow:
            took = 1e3 * (time.perf_counter() - began)
            self._notes.write(f"{self.cost.of(batch):.3f} {took:.3f} {len(batch)}\n")
        return logits


@functools.cache
def application() -> FastAPI:
    """A verifier by the environment."""
    backend = Dilated(
        Target(rows=ROWS, context_length=CONTEXT),
        Cost.parse(os.environ["PACED_TARGET"]),
        float(os.environ["CAPACITY_DILATION"]),
        Path(os.environ["CAPACITY_PASSES"]),
    )
    return create_app(from_environment(), backend, clock=backend.clock)


def __getattr__(name: str) -> FastAPI:
    # Made when uvicorn asks for it, so that importing this module starts nothing.
    if name == "app":
        return application()
    raise AttributeError(name)
