"""How passes over rows and drafts are timed against a decode step, and the tables of these times."""

import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from specpair.engines.backend import Backend, Entry, TopLogitsSpec

Clock = Callable[[], float]


class Cell(NamedTuple):
    """One kind of pass: so many rows (sequences), each with its pending token and so many drafts.

    `leaves`: of the drafts' tree, whose other leaves are second choices at the first places of a chain. 1: a chain.
    """

    rows: int
    drafts: int
    leaves: int = 1

    @property
    def parents(self) -> tuple[int, ...]:
        """Of the drafts, as in `Entry.parents`: the chain's, then the second choices'."""
        others = self.leaves - 1
        chain = self.drafts - others
        return (1,) * chain + (chain + 1,) * others if others else ()

    @property
    def path(self) -> list[int]:
        """Of the drafts, those to the last of the second choices, as indices in the entry."""
        return [*range(1, self.leaves - 1), self.drafts]

    @property
    def tokens(self) -> int:
        """How many tokens the pass feeds."""
        return self.rows * (self.drafts + 1)


STEP = Cell(1, 0)  # one decode step of one sequence


class Sample(NamedTuple):
    """Seconds of a pass, and those of a decode step at the same moment."""

    taken: float
    step: float


class Timing(NamedTuple):
    """What a cell's samples come to, as medians. `ratio` is to a decode step, `low` and `high` its quartiles; `widened`
    is to the same rows without drafts."""

    cell: Cell
    ms: float
    ratio: float
    low: float
    high: float
    widened: float


def grid(rows: Sequence[int], drafts: Sequence[int], most_tokens: int, leaves: Sequence[int] = ()) -> list[Cell]:
    """The cells of these rows and drafts with those that others are compared with, as far as a pass holds them.

    `leaves`: of trees, each of as many drafts as have room for so many second choices beside a chain.
    """
    cells = {Cell(count, length) for count in rows for length in {0, *drafts}}
    cells |= {cell._replace(leaves=each) for cell in cells for each in leaves if 2 * each - 2 <= cell.drafts}
    return sorted(cell for cell in {STEP, *cells} if cell.tokens <= most_tokens)


class Passes:
    """Runs cells on an engine whose slots hold `held` tokens each.

    `wanted` is what is asked of each row of logits. What a pass adds to a slot, the next one takes back at no cost.
    """

    def __init__(self, backend: Backend, held: int, wanted: TopLogitsSpec, clock: Clock = time.perf_counter) -> None:
        self._backend, self._held, self._wanted, self._clock = backend, held, wanted, clock
        ids = np.random.default_rng(0).integers(0, backend.vocabulary.size, backend.context_length)
        self._ids: list[int] = ids.tolist()
        for slot in range(backend.slots):
            for start in range(0, held, backend.max_batch_tokens):
                chunk = self._ids[start : min(held, start + backend.max_batch_tokens)]
                backend.extend_top_logits([Entry(slot, start, chunk, len(chunk))], [wanted])

    def batch(self, cell: Cell) -> list[Entry]:
        """The pending token and the drafts of each row, all of them judged, as a verifier feeds them."""
        tokens = self._ids[self._held : self._held + cell.drafts + 1]
        return [Entry(slot, self._held, tokens, 0, cell.parents) for slot in range(cell.rows)]

    def seconds(self, cell: Cell) -> float:
        """Of one pass that follows one like it: the first of a kind finds caches and threads as the last left them."""
        batch, wanted = self.batch(cell), [self._wanted] * cell.rows
        self._run(batch, wanted, cell)
        began = self._clock()
        self._run(batch, wanted, cell)  # the result is on the host, so the device has finished
        return self._clock() - began

    def _run(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec], cell: Cell) -> None:
        """A pass, and of trees a path that is kept, as after each verify."""
        self._backend.extend_top_logits(batch, wanted)
        for entry in batch if cell.leaves > 1 else ():
            self._backend.keep(entry.slot, cell.path)


def measure(
    seconds: Callable[[Cell], float], cells: Sequence[Cell], more: Callable[[int], bool]
) -> dict[Cell, list[Sample]]:
    """Rounds of all cells, each time in another order, and each cell between two decode steps;

    `more`: after so many.

    A machine that changes its pace from one second to the next does so for a cell and for the steps beside it.
    """
    shuffle = random.Random(0).sample
    samples: dict[Cell, list[Sample]] = {cell: [] for cell in cells}
    rounds = 0
    while more(rounds):
        before = seconds(STEP)
        for cell in shuffle(list(cells), len(cells)):
            taken, after = seconds(cell), seconds(STEP)
            samples[cell].append(Sample(taken, (before + after) / 2))
            before = after
        rounds += 1
    return samples


def timings(samples: dict[Cell, list[Sample]]) -> dict[Cell, Timing]:
    """What the rounds come to."""
    ratios = {cell: [each.taken / each.step for each in own] for cell, own in samples.items()}
    found = {}
    for cell, own in samples.items():
        low, middle, high = (float(each) for each in np.percentile(ratios[cell], (25, 50, 75)))
        widened = median(a / b for a, b in zip(ratios[cell], ratios[Cell(cell.rows, 0)], strict=True))
        found[cell] = Timing(cell, 1e3 * median(each.taken for each in own), middle, low, high, widened)
    return found


def trees_table(found: dict[Cell, Timing], rows: int) -> list[str]:
    """What trees take, times the chains of as many drafts: leaves down, drafts across, for so many rows."""
    trees = [cell for cell in found if cell.leaves > 1 and cell.rows == rows]
    drafts = sorted({cell.drafts for cell in trees})
    lines = ["", f"trees of k drafts, times the chain of k, rows {rows}"]
    lines.append("leaves \\ k" + "".join(f"{length:>7}" for length in drafts))
    for leaves in sorted({cell.leaves for cell in trees}):
        ratios = ((found.get(Cell(rows, length, leaves)), found[Cell(rows, length)]) for length in drafts)
        cells = ("-" if tree is None else f"{tree.ratio / chain.ratio:.2f}" for tree, chain in ratios)
        lines.append(f"{leaves:>10}" + "".join(f"{text:>7}" for text in cells))
    return lines


def table(title: str, found: dict[Cell, Timing], show: Callable[[Timing], str]) -> list[str]:
    """Of chains: rows down, drafts across; a dash where a pass does not hold as many tokens."""
    drafts = sorted({cell.drafts for cell in found})
    shown = {cell: show(timing) for cell, timing in found.items() if cell.leaves == 1}
    width = 2 + max(len(text) for text in [*shown.values(), *map(str, drafts)])
    lines = ["", title, "rows \\ k" + "".join(f"{length:>{width}}" for length in drafts)]
    for rows in sorted({cell.rows for cell in found}):
        cells = (shown.get(Cell(rows, length), "-") for length in drafts)
        lines.append(f"{rows:>8}" + "".join(f"{text:>{width}}" for text in cells))
    return lines
