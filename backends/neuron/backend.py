"""Llama models on trn1 and inf2 through transformers-neuronx 0.13, the last of its line (Neuron SDK 2.25).

It has not run on the hardware: it is tested on a CPU against a stand-in that does with tokens, slots and rows what the
library's source does (`tests/stand_ins/transformers_neuronx`).

A row is a line of the library's continuous batching. It holds keys and values by slot, and which of them count is
known to the caller alone: so taking tokens back is nothing but passing a smaller slot. Two kinds of passes are used:

* a prompt from slot 0 on, of any length, which tells what follows its last token and nothing of the others;
* a speculative pass from a slot above 0 on, of one of the compiled widths, which tells what follows each of its tokens.

The third kind, a pass over a single token, is never used: it writes into slot 0 of every other row. And no token goes
to the last slot of a row, where pads end up.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from backends.base import Backend, BadEntry, EngineFailure, Entry, LoadOptions, Logits, ModelLoadError, Progress
from backends.hugging_face.folder import model_name
from backends.neuron.install import LEGACY_REQUIREMENTS, import_neuron
from backends.neuron.model import TYPES, Checkpoint, Shape, compiled, read_checkpoint
from backends.neuron.shapes import LENGTHS, Piece, padded, pieces, places, prompt_buckets, slots_for

_ROWS: Final = 4  # for `auto`: the library does not say how much memory the devices have
_CONTEXT_AT_MOST: Final = 4096  # unless asked for more
_READ, _OPENED, _BUILT = 0.02, 0.05, 0.8  # progress at these points: building, which does not tell its own, is most
# What the library, its compiler and the chip decide among themselves.
_NO_CHOICE: Final = ("gpu_layers", "threads", "mmap", "flash_attention", "deterministic")


class NeuronLegacyBackend(Backend):
    """See the module. A batch takes a pass of the device for each of its entries, or a few."""

    name = "neuron_legacy"
    max_rollback = None
    can_copy = False

    def __init__(self, options: LoadOptions, progress: Progress | None = None) -> None:
        report = progress or (lambda fraction: None)
        _check_options(options)
        checkpoint = read_checkpoint(options.model)
        self.model_name = model_name(checkpoint.folder)
        self.rows = options.rows or _ROWS
        if options.shared_cells is not None:  # rows to copy a text to, for what may follow it: of no use where none can
            self.rows = options.contexts
        self.context_length = options.context_length or min(checkpoint.trained, _CONTEXT_AT_MOST) - 1
        if self.context_length < 2:
            raise ModelLoadError(f"context is {self.context_length}, a prompt and an answer take at least 2 tokens")
        self.max_batch_tokens = max(options.batch_tokens, self.rows, 2)
        slots = slots_for(self.context_length)
        buckets = prompt_buckets(self.max_batch_tokens, slots)
        shape = Shape(self.rows, slots, buckets, options.dtype or "bfloat16", options.tensor_parallel)
        self.kv_bytes = checkpoint.kv_bytes(shape)
        self._slots = slots
        super().__init__()
        neuron = import_neuron("transformers_neuronx", LEGACY_REQUIREMENTS)
        from backends.hugging_face.vocabulary import (  # needs tokenizers, which came with it
            read_chat_template,
            read_vocabulary,
        )

        self._torch = import_module("torch")  # so did this
        self.vocabulary = read_vocabulary(checkpoint.folder, checkpoint.vocabulary_size)
        self.chat_template = read_chat_template(checkpoint.folder)
        report(_READ)
        self._model: Any = None
        try:
            self._build(neuron, checkpoint, shape, report)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._model = None  # the devices' memory goes with it

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        try:
            with self._torch.inference_mode():
                return [self._extended(entry) for entry in batch]
        except EngineFailure:
            raise
        except Exception as error:  # of any kind here, too
            raise EngineFailure(f"transformers-neuronx failed: {type(error).__name__}: {error}") from error

    def _build(self, neuron: Any, checkpoint: Checkpoint, shape: Shape, report: Progress) -> None:
        try:
            self._model = compiled(neuron, checkpoint, shape)
            report(_OPENED)
            self._model.to_neuron()
            report(_BUILT)
            self._warm_up(shape.buckets, report)
        except ModelLoadError:
            raise
        except Exception as error:  # of any kind: assertions, the runtime's, the compiler's
            reason = f"{type(error).__name__}: {error}"
            raise ModelLoadError(f"transformers-neuronx could not load {checkpoint.folder}: {reason}") from error

    def _copy(self, source: int, destination: int, length: int) -> None:
        raise BadEntry(f"{self.name} cannot copy rows")  # as `copy` has said already

    def _release(self, row: int) -> None:
        """Nothing: which slots count is known to the lengths of the contract alone."""

    def _extended(self, entry: Entry) -> Logits:
        row, start, tokens, logits_from = entry
        done = 0
        parts = [np.empty((0, self.vocabulary.size), dtype=np.float32)]
        if start == 0:  # a prompt up to the first token of which logits are wanted
            done = min(logits_from + 1, len(tokens))
            after_last = self._prompt(row, tokens[:done])
            if logits_from < len(tokens):
                parts.append(after_last)
        for piece in pieces(len(tokens) - done):
            first = done + piece.first
            logits = self._speculated(row, start + first, tokens[first : first + piece.size], piece)
            parts.append(logits[max(0, logits_from - first) :])
        return np.concatenate(parts)

    def _prompt(self, row: int, tokens: Sequence[int]) -> Logits:
        """Fill a row from slot 0 on; (1, vocab), what follows the last of `tokens`.

        A prompt of one token gets a pad, since without one it would be a pass over a single token. The library takes
        the token with the greatest slot for the last: so the pad's is said to be 0, too, though it goes to slot 1.
        """
        count = len(tokens)
        slots = padded(range(count), max(count, 2))
        logits = self._model.forward(
            self._tensor([padded(tokens, len(slots))]), cache_ids=self._tensor([slots]), start_ids=self._tensor([row])
        )
        return self._array(logits, (1, self.vocabulary.size))

    def _speculated(self, row: int, start: int, tokens: Sequence[int], piece: Piece) -> Logits:
        """One pass over one row from a slot above 0 on; (count, vocab), what follows each of `tokens`."""
        logits = self._model.speculative_forward(
            self._tensor([padded(tokens, piece.length)]),
            cache_ids=self._tensor([places(start, piece.length, self._slots)]),
            start_ids=self._tensor([row]),
            speculation_length=piece.length,
        )
        return self._array(logits, (piece.length, self.vocabulary.size, 1))[: piece.size, :, 0]

    def _tensor(self, values: Sequence[Any]) -> Any:
        return self._torch.tensor(values, dtype=self._torch.int32)

    def _array(self, logits: Any, shape: tuple[int, ...]) -> Logits:
        if tuple(logits.shape) != shape:
            raise EngineFailure(
                f"transformers-neuronx gave logits of shape {tuple(logits.shape)}, expected was {shape}"
            )
        array: Logits = logits.float().numpy()
        return array

    def _warm_up(self, buckets: Sequence[int], report: Progress) -> None:
        """Run every program once: the first run of each is slow, and a program that fails should do so now."""
        programs = len(buckets) + len(LENGTHS)
        with self._torch.inference_mode():
            for done, bucket in enumerate(buckets, start=1):
                self._prompt(0, [0] * (bucket - 1))
                report(_BUILT + (1 - _BUILT) * done / programs)
            for done, length in enumerate(LENGTHS, start=len(buckets) + 1):
                self._speculated(0, 1, [0] * length, Piece(0, length, length))
                report(_BUILT + (1 - _BUILT) * done / programs)


def load(options: LoadOptions, progress: Progress | None = None) -> NeuronLegacyBackend:
    """Load a folder in Hugging Face layout and compile it. Raises ModelLoadError with the reason."""
    return NeuronLegacyBackend(options, progress)


def _check_options(options: LoadOptions) -> None:
    """Raises ModelLoadError for what cannot be honoured."""
    options.refuse("neuron_legacy", *_NO_CHOICE)
    if options.kv_type != "f16":  # unless it was left as it is
        raise ModelLoadError(
            f"kv_type {options.kv_type}: neuron_legacy caches in the number type of the model: set dtype"
        )
    if options.device not in (None, "neuron"):
        raise ModelLoadError(f"device {options.device!r}: neuron_legacy runs on 'neuron' only")
    if options.dtype is not None and options.dtype not in TYPES:
        raise ModelLoadError(f"dtype {options.dtype!r} is unknown: choose one of {', '.join(TYPES)}")
    for name, value in (("rows", options.rows), ("tensor_parallel", options.tensor_parallel)):
        if value is not None and value < 1:
            raise ModelLoadError(f"{name} is {value}, at least 1 is needed")
