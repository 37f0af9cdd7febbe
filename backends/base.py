"""The contract every engine fulfils, with its bookkeeping and its checks in one place.

One verb: `extend` runs ONE forward pass over several rows. A row is one sequence's KV cache. Tokens are
placed at positions `start, start + 1, …` and whatever the row held from `start` on is forgotten. So taking
back rejected drafts is not an operation: it is a smaller `start`.

The rule that goes wrong most often: a session's row holds the KV of `tokens[:-1]`; the last committed token
is *pending*, known but not yet fed. Verifying drafts d1 … dk feeds `[pending, d1 … dk]` at
`start = len(tokens) - 1` and gets k + 1 rows of logits: row i judges d(i+1), and the row after the last
accepted draft gives the next token, free.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from backends.vocabulary import Vocabulary
from speculation.sampling.sampling import Sampling
from speculation.sampling.top_logits import TopLogits

T = TypeVar("T")
Logits = NDArray[np.float32]
Rows = Logits | Sequence[TopLogits]
Progress = Callable[[float], None]
DTYPES = ("float32", "bfloat16", "float16")


class BackendError(Exception):
    """Base of everything an engine can raise on purpose."""


class ModelLoadError(BackendError):
    """The model could not be loaded; the message says which file or setting, and what to do."""


def first_line(error: BaseException) -> str:
    """What a library's error says, for one of ours; some say a lot, some nothing."""
    return next(iter(str(error).strip().splitlines()), repr(error))


class EngineCrash(ModelLoadError):
    """The engine kills its process on this machine, as a trial in another process showed; nothing was loaded."""


class BadEntry(BackendError):
    """A row, start, token or logits range that the contract does not allow. Nothing was changed."""


class OutOfRoom(BackendError):
    """The KV cache cannot hold this batch. The rows named in it must be refilled from their tokens."""


class EngineFailure(BackendError):
    """The engine failed within a forward pass. The rows named in the batch must be refilled."""


class EngineLost(EngineFailure):
    """The engine failed for good: every later pass will raise this too, until the model is loaded again."""


class Entry(NamedTuple):
    """Work for one row: place `tokens` from position `start`, return logits of `tokens[logits_from:]`."""

    row: int
    start: int
    tokens: Sequence[int]
    logits_from: int


class HeadOf(NamedTuple):
    """What is wanted of each row of an entry: the `size` greatest logits of the ids below `below`, and the log of the
    sum of exp(logit / `temperature`) over all of these ids. A `size` of 1 is all that greedy decoding needs."""

    size: int
    temperature: float
    below: int


ROWS_AT_MOST = 256  # of one engine: what llama.cpp takes
HEAD = 1024  # logits that decide nearly every token that is drawn


def head_for(sampling: Sampling, below: int, choices: int = 1) -> HeadOf:
    """What suffices to choose by `sampling` among the ids below `below`; `choices`: how many are to be named."""
    size = choices if sampling.greedy else max(HEAD, sampling.top_k)
    return HeadOf(min(size, below), sampling.softmax_temperature, below)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a user may choose about an engine. None leaves the choice to the engine."""

    model: Path | None = None
    rows: int | None = 1  # None: as many as memory allows, where an engine can tell
    context_length: int | None = None  # tokens per row
    shared_cells: int | None = None  # rows share `contexts` and so many tokens beyond these; None: each has its own
    contexts: int = 1  # whole ones among rows that share: as many as there are texts that have nothing in common
    batch_tokens: int = 512  # tokens in one forward pass
    gpu_layers: int = -1  # -1: all that the build can offload
    threads: int | None = None
    kv_type: str = "f16"
    mmap: bool = True
    flash_attention: bool = True
    deterministic: bool = False  # bit-identical logits whatever the batch, where an engine can
    device: str | None = None  # where an engine lets one choose: cpu, cuda, cuda:1, mps, neuron
    dtype: str | None = None  # of weights and KV cache, where an engine converts: float32, bfloat16, float16
    compile: bool = False  # compile the model for its shapes first, where that is a choice
    tensor_parallel: int = 1  # devices that one model is spread over

    def refuse(self, engine: str, *names: str) -> None:
        """Raise ModelLoadError when one of these was chosen: `engine` would leave it aside in silence."""
        for field in fields(self):
            if field.name in names and getattr(self, field.name) != field.default:
                raise ModelLoadError(f"{field.name}: the {engine} backend has no such choice, leave it out")


class Backend(ABC):
    """An engine with a model loaded. Used by one thread at a time.

    `rows`             how many sequences it holds at once
    `context_length`   positions per row
    `max_batch_tokens` tokens in one `extend`, over all its entries
    `max_rollback`     how many of a row's last tokens a smaller `start` may take back; None: any number
    `even_width`       an entry of up to so many tokens, alone in its pass, leaves the KV that its tokens one by one
                       would leave; None: nobody knows
    `can_copy`         whether `copy` works
    `has_heads`        whether `heads` gives heads: for engines from which a whole row of logits is long to fetch
    """

    name: str
    model_name: str
    vocabulary: Vocabulary
    rows: int
    context_length: int
    max_batch_tokens: int
    max_rollback: int | None = None
    even_width: int | None = None
    can_copy: bool = True
    has_heads: bool = False
    chat_template: str | None = None
    kv_bytes: int = 0  # memory of the KV cache of all rows

    def __init__(self) -> None:
        """Raises ModelLoadError for limits with which nothing could be served."""
        if self.context_length < 2:
            raise ModelLoadError(f"context is {self.context_length}, a prompt and an answer take at least 2 tokens")
        self._lengths = [0] * self.rows

    def length(self, row: int) -> int:
        """How many tokens `row` holds."""
        self._check_row(row)
        return self._lengths[row]

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        """ONE forward pass. Per entry, float32 logits of shape (len(tokens) - logits_from, vocab).

        The arrays are valid until the next `extend`: decide or copy before it. Raises BadEntry
        with nothing changed, OutOfRoom or EngineFailure with the batch's rows emptied.
        """
        return self._booked(batch, lambda: self._forward(batch))

    def heads(self, batch: Sequence[Entry], wanted: Sequence[HeadOf]) -> Sequence[Rows]:
        """`extend`, with what suffices to decide: per entry the head of each row, or whole rows without `has_heads`.

        `wanted[i]` is for `batch[i]`. Heads are valid as long as the arrays of `extend`, and raise EngineFailure when
        they have to fetch a row after all and cannot.
        """
        size = self.vocabulary.size
        if len(wanted) != len(batch) or any(not 1 <= each.size <= each.below <= size for each in wanted):
            raise BadEntry(f"heads of 1 to {size} ids can be had, one kind for each of {len(batch)} entries")
        if self.has_heads:
            return self._booked(batch, lambda: self._heads(batch, wanted))
        whole = zip(self.extend(batch), wanted, strict=True)
        return [rows if each.below == size else rows[:, : each.below] for rows, each in whole]

    def _booked(self, batch: Sequence[Entry], run: Callable[[], T]) -> T:
        """Check the batch, run it, and keep the books."""
        self._check_batch(batch)
        try:
            result = run()
        except BackendError:
            for entry in batch:
                self.release(entry.row)
            raise
        for entry in batch:
            self._lengths[entry.row] = entry.start + len(entry.tokens)
        return result

    def copy(self, source: int, destination: int, length: int) -> None:
        """Make `destination` hold the first `length` tokens of `source`, and nothing else."""
        if not self.can_copy:
            raise BadEntry(f"{self.name} cannot copy rows")
        self._check_row(source)
        self._check_row(destination)
        if source == destination or not 0 <= length <= self._lengths[source]:
            raise BadEntry(
                f"cannot copy {length} tokens from row {source} (it holds {self._lengths[source]}) to row {destination}"
            )
        self._copy(source, destination, length)
        self._lengths[destination] = length

    def release(self, row: int) -> None:
        """Forget everything `row` holds."""
        self._check_row(row)
        self._release(row)
        self._lengths[row] = 0

    @abstractmethod
    def close(self) -> None:
        """Free the model. Nothing may be called afterwards; a second close does nothing."""

    @abstractmethod
    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        """`extend` after its checks."""

    def _heads(self, batch: Sequence[Entry], wanted: Sequence[HeadOf]) -> list[list[TopLogits]]:
        """`heads` after its checks, for engines that have them."""
        raise NotImplementedError

    @abstractmethod
    def _copy(self, source: int, destination: int, length: int) -> None:
        """`copy` after its checks."""

    @abstractmethod
    def _release(self, row: int) -> None:
        """`release` after its checks."""

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.rows:
            raise BadEntry(f"row {row} does not exist: this backend has rows 0 to {self.rows - 1}")

    def _check_batch(self, batch: Sequence[Entry]) -> None:
        if not batch:
            raise BadEntry("the batch is empty")
        seen: set[int] = set()
        total = 0
        for row, start, tokens, logits_from in batch:
            self._check_row(row)
            if row in seen:
                raise BadEntry(f"row {row} stands twice in one batch")
            seen.add(row)
            count, held = len(tokens), self._lengths[row]
            total += count
            if not count:
                raise BadEntry(f"row {row}: no tokens")
            if not 0 <= start <= held:
                raise BadEntry(f"row {row}: start {start} leaves a gap, the row holds {held} tokens")
            if self.max_rollback is not None and 0 < start < held - self.max_rollback:
                raise BadEntry(f"row {row}: start {start} takes back more than {self.max_rollback} of {held} tokens")
            if start + count > self.context_length:
                raise BadEntry(f"row {row}: {start + count} tokens exceed the context of {self.context_length}")
            if not 0 <= logits_from <= count:
                raise BadEntry(f"row {row}: logits_from {logits_from} is outside of its {count} tokens")
            if min(tokens) < 0 or max(tokens) >= self.vocabulary.size:
                raise BadEntry(f"row {row}: a token id is outside of the vocabulary of {self.vocabulary.size}")
        if total > self.max_batch_tokens:
            raise BadEntry(f"{total} tokens exceed the batch limit of {self.max_batch_tokens}")
