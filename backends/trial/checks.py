"""Checks of an engine with its loaded model, and code that all checks share."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.load_options import LoadOptions
from specpair.engines.probe_texts import timing_ids
from specpair.engines.vocabulary import Kind

Rows = NDArray[np.float32]
Load = Callable[[str, LoadOptions], Backend]


class CheckFailed(Exception):
    """A check found something wrong. The message says what."""


class CheckSkipped(Exception):
    """A check has nothing to do. The message says why."""


class Checks(Protocol):
    """Runs checks and reports their results."""

    def section(self, title: str) -> None:
        """Begin a part."""

    def check(self, name: str, run: Callable[[], str]) -> bool:
        """Run a check, which returns its measurement in a few words, or raises. Returns whether it passed."""


class Comparison:
    """Collects the worst difference between rows of logits and expected rows."""

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
        """The result in words. Raises CheckFailed if a difference is too large, or nothing was compared."""
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
    """The spread of a row's finite logits, as the median over rows; always above 0."""
    apart = [float(np.ptp(row[np.isfinite(row)])) for row in rows if np.isfinite(row).any()]
    return max(float(np.median(apart)) if apart else 0.0, 1e-6)


def empty(backend: Backend) -> None:
    """Empty all slots."""
    for slot in range(backend.slots):
        backend.release(slot)


def random_text(backend: Backend, seed: int, count: int) -> list[int]:
    """Random ids of ordinary tokens, after the begin token if the model has one: `count` in all."""
    vocabulary = backend.vocabulary
    ordinary = np.flatnonzero(np.equal(vocabulary.kinds, Kind.ORDINARY))
    ids: list[int] = np.random.default_rng(seed).choice(ordinary, count).tolist()
    return ids if vocabulary.begin is None else [vocabulary.begin, *ids][:count]


def devices_of(backend: Backend) -> str:
    """The devices of a model, in words."""
    count = f"{backend.devices} devices: " if backend.devices > 1 else ""
    return count + backend.runs_on


def random_batches(backend: Backend, turns: int) -> Iterator[list[Entry]]:
    """Yields `turns` batches over slots that grow, roll back a few tokens, or start again; ids from 2 to 259.

    Run each batch before taking the next one, which depends on what the slots then hold.
    """
    random = np.random.default_rng(1)
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


_WIDTHS = (1, 2, 4, 8, 16, 32)  # tokens of each slot
_HELD = 128  # tokens that each slot holds, if the context has room for them
_ROUNDS = 7
_MOST_SECONDS = 60.0
_TOLERANCE = 0.03  # of the spread of a row's logits: how much two ways to compute one may differ
_WALK = 64  # tokens of the text that is walked over
_GENERATED = 64  # tokens that are decoded alone and beside other slots


def engine_checks(backend: Backend, line: Callable[[str], None]) -> Iterator[tuple[str, Callable[[], str]]]:
    """The checks by name; each empties the slots first. `line`: takes the lines of a table of times."""
    checks: dict[str, Callable[[], str]] = {
        "pass times": partial(pass_times, backend, line),
        "a cached walk against one pass": partial(_walk, backend),
        "decoding alone and beside other slots": partial(_beside_others, backend),
    }

    def emptied(run: Callable[[], str]) -> str:
        empty(backend)
        return run()

    for name, run in checks.items():
        yield name, partial(emptied, run)


def pass_times(backend: Backend, line: Callable[[str], None]) -> str:
    """Write a table of milliseconds with `line`. Returns the times of one token and of eight of one slot, in words."""
    held = min(_HELD, backend.context_length // 2)
    length = held + max(_WIDTHS)
    ids = [timing_ids(backend.vocabulary.size, (slot + 1) * length)[-length:] for slot in range(backend.slots)]
    for slot in range(backend.slots):
        for start in range(0, held, backend.max_batch_tokens):
            part = ids[slot][start : min(held, start + backend.max_batch_tokens)]
            backend.extend([Entry(slot, start, part, len(part))])
    widths = [width for width in _WIDTHS if held + width <= backend.context_length]
    counts = sorted({1, backend.slots})
    cells = [(count, width) for count in counts for width in widths if count * width <= backend.max_batch_tokens]
    samples: dict[tuple[int, int], list[float]] = {cell: [] for cell in cells}
    began = time.perf_counter()
    for number in range(_ROUNDS + 1):
        if number > 1 and time.perf_counter() - began > _MOST_SECONDS:
            break
        for count, width in cells:
            batch = [Entry(slot, held, ids[slot][held : held + width], 0) for slot in range(count)]
            started = time.perf_counter()
            backend.extend_top_logits(batch, [TopLogitsSpec(1, 1.0, backend.vocabulary.size)] * count)
            if number:  # the first round may prepare what later ones use
                samples[count, width].append(time.perf_counter() - started)
    times = {cell: median(taken) for cell, taken in samples.items()}
    line(f"        ms of a pass, after {held} tokens, each the median of {min(map(len, samples.values()))}")
    line(f"        {'tokens a slot':>14}" + "".join(f"{width:>9}" for width in widths))
    for count in counts:
        shown = (f"{1e3 * times[count, width]:.2f}" if (count, width) in times else "-" for width in widths)
        line(f"        {f'{count} slot' + 's' * (count > 1):>14}" + "".join(f"{text:>9}" for text in shown))
    several = max(width for count, width in cells if count == 1 and width <= 8)
    return f"{1e3 * times[1, 1]:.1f} ms for 1 token of a slot, {1e3 * times[1, several]:.1f} for {several}"


def _walk(backend: Backend) -> str:
    """Compare the logits of a text fed in pieces, with rollbacks, to those of one pass over it."""
    count = min(_WALK, backend.context_length, backend.max_batch_tokens)
    text = random_text(backend, 1, count)
    whole = np.array(backend.extend([Entry(0, 0, text, 0)])[0], np.float32)
    backend.release(0)
    walked = np.empty_like(whole)
    widths, at = [1, 2, 5, 8, 3, 13], 0
    wrong = random_text(backend, 2, 4)
    while at < count:
        part = text[at : at + widths[at % len(widths)]]
        room = min(4, backend.context_length - at - len(part), backend.max_batch_tokens - len(part))
        (rows,) = backend.extend([Entry(0, at, [*part, *wrong[:room]], 0)])  # rejected draft tokens behind the part
        walked[at : at + len(part)] = rows[: len(part)]
        at += len(part)
    agreed = int(np.count_nonzero(walked.argmax(axis=1) == whole.argmax(axis=1)))
    comparison = Comparison(_TOLERANCE * spread(whole))
    comparison.add(walked, whole, f"the same token is the best in {agreed} rows")
    return f"{comparison.verdict()}, the same best token in {agreed}"


def _beside_others(backend: Backend) -> str:
    """Compare tokens decoded in slot 0 alone to those decoded while other slots decode other texts."""
    if backend.slots < 2:
        raise CheckSkipped("there is only one slot")
    prompt_length = min(8, backend.context_length // 2, backend.max_batch_tokens // backend.slots)
    count = min(_GENERATED, backend.context_length - prompt_length)
    prompts = [random_text(backend, 10 + slot, prompt_length) for slot in range(backend.slots)]
    alone, rows = _decoded(backend, prompts[:1], count)
    empty(backend)
    together, _ = _decoded(backend, prompts, count)
    same = next((at for at in range(count) if alone[at] != together[at]), count)
    found = f"{same} of {count} tokens equal, beside {backend.slots - 1} other slots"
    if same < count:
        allowed = _TOLERANCE * spread(rows)
        gap = difference(rows[same, [alone[same]]], rows[same, [together[same]]])
        if gap > allowed:
            raise CheckFailed(f"{found}; the next ones differ by a logit of {gap:.2g}, a tie is {allowed:.2g}")
        return f"{found}; then a tie within {gap:.2g}, where both are right"
    return found


def _decoded(backend: Backend, prompts: Sequence[Sequence[int]], count: int) -> tuple[list[int], np.ndarray]:
    """Decode `count` tokens greedily after each prompt. Returns those of slot 0, and the rows that chose them."""
    texts = [list(prompt) for prompt in prompts]
    pending = [(0, text) for text in texts]
    chosen, rows = [], []
    for _ in range(count):
        batch = [Entry(slot, start, tokens, len(tokens) - 1) for slot, (start, tokens) in enumerate(pending)]
        results = backend.extend(batch)
        rows.append(np.array(results[0][0], np.float32))
        tokens = [int(result[0].argmax()) for result in results]
        chosen.append(tokens[0])
        pending = [(start + len(fed), [token]) for (start, fed), token in zip(pending, tokens, strict=True)]
    return chosen, np.stack(rows)
