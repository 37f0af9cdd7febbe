"""What checks of an engine share: how they end, texts and batches to try it with, and how logits are compared."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specpair.engines.backend import Backend, Entry
from specpair.engines.load_options import LoadOptions
from specpair.engines.vocabulary import Kind

Rows = NDArray[np.float32]
Load = Callable[[str, LoadOptions], Backend]


class CheckFailed(Exception):
    """A check found something wrong. The message says what."""


class CheckSkipped(Exception):
    """A check has nothing to do. The message says why."""


class Checks(Protocol):
    """Runs checks, and says how they went."""

    def section(self, title: str) -> None:
        """Begin a part."""

    def check(self, name: str, run: Callable[[], str]) -> bool:
        """Run a check, which returns what it measured, in a few words, or raises. Returns whether it is ok."""


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


def random_text(backend: Backend, seed: int, count: int) -> list[int]:
    """Random ids of ordinary tokens, after the begin token if the model has one: `count` in all."""
    vocabulary = backend.vocabulary
    ordinary = np.flatnonzero(np.equal(vocabulary.kinds, Kind.ORDINARY))
    ids: list[int] = np.random.default_rng(seed).choice(ordinary, count).tolist()
    return ids if vocabulary.begin is None else [vocabulary.begin, *ids][:count]


def devices_of(backend: Backend) -> str:
    """Where a model runs, in words."""
    count = f"{backend.devices} devices: " if backend.devices > 1 else ""
    return count + backend.runs_on


def random_batches(backend: Backend, turns: int, seed: int = 1) -> Iterator[list[Entry]]:
    """Yields `turns` batches over slots that grow, roll back a few tokens, or start again; ids from 2 to 259.

    Run each batch before taking the next one, which depends on what the slots then hold.
    """
    random = np.random.default_rng(seed)
    while turns:
        batch, room = [], backend.max_batch_tokens
        for slot in random.permutation(backend.slots)[: random.integers(1, backend.slots + 1)].tolist():
            held = backend.length(slot)
            anywhere = random.random() < 0.2
            start = int(random.integers(0, held + 1)) if anywhere else max(0, held - int(random.integers(0, 6)))
            most = min(backend.context_length - start, room)
            if most:
                count = int(random.integers(1, min(most, random.choice([1, 2, 9, 30, 64])) + 1))
                tokens = random.integers(2, 260, count).tolist()
                batch.append(Entry(slot, start, tokens, int(random.integers(0, count + 1))))
                room -= count
        if batch:
            yield batch
            turns -= 1
