"""How logits are compared with those that they should be."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specpair.engines.backend import Backend
from verifier_server.selftest.report import CheckFailed

Rows = NDArray[np.float32]


class Comparison:
    """Collects the worst difference between rows of logits and the rows that they should be."""

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self.rows = 0
        self.worst = 0.0
        self._where = ""

    def add(self, found: Rows, expected: Rows, where: str) -> None:
        """Compare rows (n, vocab). `where`: says which rows they are, if they are the worst."""
        if found.shape != expected.shape:
            raise CheckFailed(f"{where}: logits of shape {found.shape}, expected was {expected.shape}")
        self.rows += len(found)
        worst = difference(found, expected)
        if worst > self.worst:
            self.worst, self._where = worst, where

    def verdict(self) -> str:
        """What was found, in words. Raises CheckFailed if a difference is not allowed, or nothing was compared."""
        if not self.rows:
            raise CheckFailed("no rows were compared")
        found = f"{self.rows} rows, worst difference {self.worst:.2g}, allowed {self.allowed:.2g}"
        if self.worst > self.allowed:
            raise CheckFailed(f"{found}: {self._where}")
        return found


def difference(found: Rows, expected: Rows) -> float:
    """The greatest difference between two arrays of logits; infinite for NaN. Equal infinities are equal."""
    if not found.size:
        return 0.0
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        gaps = np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64))
    gaps[np.equal(found, expected)] = 0.0
    return float(np.nan_to_num(gaps, nan=np.inf).max())


def spread(rows: Rows) -> float:
    """How far the finite logits of a row are apart, as the median over rows; at least a little above 0."""
    apart = [float(np.ptp(row[np.isfinite(row)])) for row in rows if np.isfinite(row).any()]
    return max(float(np.median(apart)) if apart else 0.0, 1e-6)


def empty(backend: Backend, slots: Sequence[int] | None = None) -> None:
    """Empty these slots, or all."""
    for slot in range(backend.slots) if slots is None else slots:
        backend.release(slot)
