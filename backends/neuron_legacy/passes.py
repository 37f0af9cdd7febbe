"""The passes of a model of transformers-neuronx: the programs that are compiled for them, and how tokens are cut.

A slot is one sequence (`start_ids`) of the library's continuous batching. Its KV cache consists of cells (`cache_ids`),
cell i for position i. The library does not record which cells are valid, so a rollback is a pass from an earlier cell
on. There are three kinds of passes:

* a prompt pass, from cell 0 on, which returns the logits of its last token;
* a continuation, from a cell above 0 on, which returns the logits of its last token, too: for long prompts;
* a verify pass, from a cell above 0 on, which returns the logits of each of its tokens.

The library's fourth kind, a pass over a single token, is never used: it writes into cell 0 of every other slot.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple

from specpair.engines.backend import Logits
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import LoadOptions

Work = tuple[int, Sequence[int]]  # the cell of the first token, above 0, and the tokens

# All models of a process share its cores, and each core waits in a pass for the others. If the passes of two models
# began in one order on the first core and in another on the second, both would wait for ever. So they take turns.
ONE_AT_A_TIME: Final = threading.Lock()
_CHUNK: Final = 2**17  # logits that are copied at a time: as many as a core's cache holds
GRAIN: Final = 128  # caches and prompt widths are multiples of it: the width of the chip's matrix unit
# Tokens of verify passes: with the pending one, drafts of 3, 12 and 29. Few, as each takes minutes to compile, and a
# pass over 4 slots of up to 30 tokens is one tile of the matrix unit anyway. No rounder numbers: see `programs_for`.
_VERIFY_WIDTHS: Final = (4, 13, 30)
# Tokens of a prompt pass: from 4,096 on, the library takes a kernel for attention that `make test-tnx` cannot run.
_PROMPT_AT_MOST: Final = 2048


class PassTokens(NamedTuple):
    """The tokens of one pass: `size` of them, from index `first` on, padded to the compiled `width`."""

    first: int
    size: int
    width: int
    last_only: bool  # a continuation, which returns the logits of its last token only; else a verify pass


@dataclass(frozen=True, slots=True)
class Programs:
    """The widths, in tokens, and the spans, in cells, that programs are compiled for. All are in ascending order.

    `slots`: of the cache.
    `spans`: how many cells of each slot a program attends to; the last one is all cells.
    """

    slots: int
    spans: tuple[int, ...]
    prompts: tuple[int, ...]
    continuations: tuple[int, ...]
    verify: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Cells in each slot, one per position."""
        return self.spans[-1]

    @property
    def batches(self) -> list[int]:
        """The numbers of slots that a verify pass can have: one, and all."""
        return sorted({1, self.slots})

    @property
    def count(self) -> int:
        """How many programs are compiled."""
        a_span = len(self.continuations) + len(self.verify) * len(self.batches)
        return len(self.prompts) + len(self.spans) * a_span

    def pieces(self, count: int, logits_from: int) -> list[PassTokens]:
        """Cut `count` tokens behind others into passes, with logits from the token at index `logits_from` on.

        Tokens whose logits nobody wants go through continuations, as far as these are wider than verify passes.
        """
        widest = self.verify[-1]
        unread = min(logits_from + 1, count)  # the last of a continuation may be the first token with wanted logits
        if unread <= widest or not self.continuations:
            return _cut(0, count, self.verify, last_only=False)
        return [
            *_cut(0, unread, self.continuations, last_only=True),
            *_cut(unread, count, self.verify, last_only=False),
        ]


def programs_for(options: LoadOptions, slots: int, context_length: int, batch_tokens: int) -> Programs:
    """The programs for slots that hold `context_length` tokens, and passes of up to `batch_tokens` tokens.

    Raises ModelLoadError for widths and spans in `options` that the library cannot use.
    """
    cells = cells_for(context_length)
    spans = tuple(sorted({_round_up(span) for span in options.compile_spans or () if span < cells} | {cells}))
    prompts = tuple(sorted({GRAIN, min(_round_up(batch_tokens), cells, _PROMPT_AT_MOST)}))
    verify = options.compile_widths or _VERIFY_WIDTHS
    # The library takes a pass as wide as its span for a prompt.
    if not 1 < verify[0] <= verify[-1] < GRAIN:
        raise ModelLoadError(
            f"compile_widths {_shown(verify)}: neuron_legacy verifies 2 to {GRAIN - 1} tokens in a pass",
            "compile_widths",
        )
    if list(set(verify)) != list(verify):
        raise ModelLoadError(
            f"compile_widths {_shown(verify)}: transformers-neuronx bisects a set of the widths, and Python's order of "
            f"this set is not ascending. {_shown(_VERIFY_WIDTHS)} and 4,8,16,30,63 work",
            "compile_widths",
        )
    return Programs(slots, spans, prompts, tuple(width for width in prompts if width < spans[0]), verify)


def cells_of(start: int, width: int, cells: int) -> list[int]:
    """The cells of a pass of `width` tokens from the cell `start` on, in a slot of `cells` cells.

    They are consecutive, but the slot's last cell takes all that would lie beyond it.

    Padding may overwrite cells behind the last real token, since they are written again before they are read, and the
    last cell, which holds no token. Padding may not go below `start`: a pass attends to the cells below the smallest of
    its own.
    """
    return [min(start + offset, cells - 1) for offset in range(width)]


def cells_for(context_length: int) -> int:
    """The number of cells in a slot that holds `context_length` tokens: at least one more, for padding."""
    return _round_up(context_length + 1)


def padded(tokens: Sequence[int], width: int) -> list[int]:
    """`tokens`, padded with zeros to `width`."""
    return [*tokens, *[0] * (width - len(tokens))]


def _cut(first: int, end: int, widths: Sequence[int], *, last_only: bool) -> list[PassTokens]:
    """Cut the tokens from `first` to `end` into the fewest passes: all but the last one as wide as possible."""
    cut = []
    for at in range(first, end, widths[-1]):
        size = min(widths[-1], end - at)
        cut.append(PassTokens(at, size, next(width for width in widths if width >= size), last_only))
    return cut


def _round_up(count: int) -> int:
    return math.ceil(count / GRAIN) * GRAIN


def _shown(widths: Sequence[int]) -> str:
    return ",".join(map(str, widths))


class Passes:
    """Runs the programs of a built model. `vocabulary_size`: logits per token."""

    def __init__(self, model: Any, programs: Programs, vocabulary_size: int) -> None:
        self._torch = import_module("torch")  # a dependency of transformers-neuronx
        self._model, self._programs, self._vocabulary_size = model, programs, vocabulary_size

    def prompt(self, slot: int, tokens: Sequence[int]) -> Logits:
        """Run a prompt pass, from cell 0 on. Returns the logits (1, vocab) of the last of `tokens`.

        A prompt of one token gets a padding token: else it would be a pass over a single token. The library returns the
        logits of the token with the greatest cell. So the padding token's cell is given as 0, although the library
        writes it to cell 1.
        """
        count = len(tokens)
        cells = padded(range(count), max(count, 2))
        given = {"cache_ids": self._tensor([cells]), "start_ids": self._tensor([slot])}
        with ONE_AT_A_TIME:
            logits = self._model.forward(self._tensor([padded(tokens, len(cells))]), **given)
        return self._array(logits, (1, self._vocabulary_size))

    def continuation(self, slot: int, work: Work, width: int) -> Logits:
        """Run a continuation of `width` tokens. Returns the logits (1, vocab) of the last token of `work`.

        As the library does for its windows, this hands embeddings to the program: (hidden, tokens, slots).
        """
        start, tokens = work
        program = self._model.decoder_lm_head_for_window_context[width]
        ids = self._tensor([padded(tokens, width)])
        hidden = self._model.chkpt_model.model.embed_tokens(ids).transpose(0, -1).contiguous()
        cells = self._tensor([cells_of(start, width, self._programs.cells)])
        inputs = [hidden, cells, self._tensor([slot]), self._tensor([len(tokens) - 1])]
        unused = [self._tensor([0])] * (len(program.inputs_sdim) - len(inputs))  # of paged attention, in newer versions
        with ONE_AT_A_TIME:
            logits = program(*inputs, *unused)
        return self._array(logits[: self._vocabulary_size, -1, :].transpose(0, 1), (1, self._vocabulary_size))

    def verify(self, work: Mapping[int, Work], held: Sequence[int], *, every: bool = False) -> dict[int, Logits]:
        """Run the verify pass of the slots in `work`: over all slots, or over that of the only one.

        `held`: how many tokens each slot holds; what a slot outside of `work` holds stays: its padding goes behind it,
        and not to cell 0, since a pass whose first cell is 0 is a prompt pass to the library.
        `every`: takes all slots in any case.

        Returns the logits (tokens, vocab) of each slot in `work`.
        """
        most = max(len(tokens) for _, tokens in work.values())
        width = next(width for width in self._programs.verify if width >= most)
        slots = list(range(self._programs.slots)) if every or len(work) > 1 else list(work)
        given = [work[slot] if slot in work else (max(1, held[slot]), ()) for slot in slots]
        cells = self._tensor([cells_of(start, width, self._programs.cells) for start, _ in given])
        ids = self._tensor([padded(tokens, width) for _, tokens in given])
        with ONE_AT_A_TIME:
            logits = self._model.speculative_forward(
                ids, speculation_length=width, cache_ids=cells, start_ids=self._tensor(slots)
            )
        self._check_shape(logits, (width, self._vocabulary_size, len(slots)))
        wanted = [(slots.index(slot), len(tokens)) for slot, (_, tokens) in work.items()]
        return dict(zip(work, self._copied(logits, wanted), strict=True))

    def probe(self, held: int) -> None:
        """Run a verify pass after the `held` tokens of slot 0, which stay. Passes on the library's errors."""
        self.verify({0: (max(1, held), [0] * self._programs.verify[0])}, ())

    def warm_up(self) -> Iterator[None]:
        """Run every program once: its first run is slow, and a program that fails should fail at load.

        Yields after each program.
        """
        programs = self._programs
        for width in programs.prompts:
            self.prompt(0, [0] * (width - 1))
            yield
        for span in programs.spans:
            for width in programs.continuations:
                self.continuation(0, (span - width, [0] * width), width)
                yield
            for width in programs.verify:
                for batch in programs.batches:
                    work = {0: (span - width, [0] * width)}
                    self.verify(work, [0] * programs.slots, every=batch > 1)
                    yield

    def _copied(self, logits: Any, wanted: Sequence[tuple[int, int]]) -> list[Logits]:
        """The logits (count, vocab) of the first `count` tokens of the item at `index` of logits (tokens, vocab,
        slots), for each (index, count) in `wanted`, in float32.

        The library keeps the logits of an id side by side, for all tokens and slots, so that a row is spread over all
        of the memory. They are copied in chunks of ids: so each part of the memory comes into the cache once, and not
        once for each row.
        """
        tokens, vocabulary, slots = logits.shape
        rows = [self._torch.empty(count, vocabulary, dtype=self._torch.float32) for _, count in wanted]
        ids = max(1, _CHUNK // (tokens * slots))
        for first in range(0, vocabulary, ids):
            chunk = logits[:, first : first + ids]
            for into, (index, count) in zip(rows, wanted, strict=True):
                into[:, first : first + ids] = chunk[:count, :, index]
        return [each.numpy() for each in rows]

    def _tensor(self, values: Sequence[Any]) -> Any:
        return self._torch.tensor(values, dtype=self._torch.int32)

    def _array(self, logits: Any, shape: tuple[int, ...]) -> Logits:
        """The library's logits in NumPy. Raises EngineFailure if their shape is not `shape`."""
        self._check_shape(logits, shape)
        array: Logits = logits.float().numpy()
        return array

    @staticmethod
    def _check_shape(logits: Any, shape: tuple[int, ...]) -> None:
        if tuple(logits.shape) != shape:
            raise EngineFailure(
                f"transformers-neuronx returned logits of shape {tuple(logits.shape)}, expected was {shape}"
            )
