"""Llama models on trn1 and inf2 through transformers-neuronx 0.13, the last of its line (Neuron SDK 2.25).

This backend has not run on the hardware. It is tested on a CPU against a stand-in that treats tokens, positions and
slots as the library's source does (`tests/stand_ins/transformers_neuronx`).

A slot is one sequence (`start_ids`) of the library's continuous batching. Its KV cache consists of cells (`cache_ids`),
cell i for position i. The library does not record which cells are valid, so a rollback is a pass from an earlier cell
on. Two kinds of passes are used:

* a prompt pass from cell 0 on, of any length, which returns the logits of its last token only;
* a speculative pass from a cell above 0 on, of a compiled width, which returns the logits of each of its tokens.

The third kind, a pass over a single token, is never used: it writes into cell 0 of every other slot. No token goes to
the last cell of a slot, which takes the padding.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from backends.base import Backend, EngineFailure, Entry, LoadOptions, Logits, ModelLoadError, Progress
from backends.hugging_face.folder import model_name
from backends.neuron.install import LEGACY_REQUIREMENTS, import_neuron
from backends.neuron.model import TYPES, Checkpoint, Shape, compiled, read_checkpoint
from backends.neuron.shapes import LENGTHS, Piece, cells_for, cells_of, padded, pieces, prompt_buckets

_SLOTS: Final = 4  # where the options leave it to the engine: the library does not tell the devices' memory
_CONTEXT_AT_MOST: Final = 4096  # tokens per slot, unless the options ask for more
# The share of the loading that is done at these points. Building the model takes longest and reports no progress.
_READ, _OPENED, _BUILT = 0.02, 0.05, 0.8
# Options that the library, its compiler and the chip leave no choice about.
_NO_CHOICE: Final = ("gpu_layers", "threads", "mmap", "flash_attention", "deterministic")


class NeuronLegacyBackend(Backend):
    """A Llama model on trn1 or inf2. Each entry of a batch takes one or a few passes of the device."""

    name = "neuron_legacy"
    can_copy = False

    def __init__(self, options: LoadOptions, progress: Progress | None = None) -> None:
        """Compile and load the model `options.model`; `progress` gets the share done, 0 to 1. Raises ModelLoadError."""
        report = progress or (lambda fraction: None)
        _check_options(options)
        checkpoint = read_checkpoint(options.model)
        self.model_name = model_name(checkpoint.folder)
        self.slots = options.slots or _SLOTS
        if options.shared_cells is not None:  # the further slots are for copies of a text, which this engine lacks
            self.slots = options.contexts
        self.context_length = options.context_length or min(checkpoint.trained, _CONTEXT_AT_MOST) - 1
        super().__init__()
        self.max_batch_tokens = max(options.batch_tokens, self.slots, 2)
        cells = cells_for(self.context_length)
        buckets = prompt_buckets(self.max_batch_tokens, cells)
        shape = Shape(self.slots, cells, buckets, options.dtype or "bfloat16", options.tensor_parallel or 1)
        self.kv_bytes = checkpoint.kv_bytes(shape)
        self._cells = cells
        neuron = import_neuron("transformers_neuronx", LEGACY_REQUIREMENTS)
        from backends.hugging_face.vocabulary import (  # needs tokenizers, a dependency of transformers-neuronx
            read_chat_template,
            read_vocabulary,
        )

        self._torch = import_module("torch")  # a dependency of transformers-neuronx, too
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
        self._model = None  # this frees the devices' memory

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        try:
            with self._torch.inference_mode():
                return [self._extended(entry) for entry in batch]
        except EngineFailure:
            raise
        except Exception as error:  # any type
            raise EngineFailure(f"transformers-neuronx failed: {type(error).__name__}: {error}") from error

    def _build(self, neuron: Any, checkpoint: Checkpoint, shape: Shape, report: Progress) -> None:
        """Compile and load the model with the library `neuron`. Raises ModelLoadError."""
        try:
            self._model = compiled(neuron, checkpoint, shape)
            report(_OPENED)
            self._model.to_neuron()
            report(_BUILT)
            self._warm_up(shape.buckets, report)
        except ModelLoadError:
            raise
        except Exception as error:  # any type: assertions, errors of the runtime or the compiler
            reason = f"{type(error).__name__}: {error}"
            raise ModelLoadError(f"transformers-neuronx could not load {checkpoint.folder}: {reason}") from error

    def _release(self, slot: int) -> None:
        """Nothing to do: only the lengths in the base class say which cells are valid."""

    def _extended(self, entry: Entry) -> Logits:
        """Run the passes of one entry. Returns the logits (tokens, vocab) that it wants."""
        slot, start, tokens, logits_from = entry
        done = 0
        parts = [np.empty((0, self.vocabulary.size), dtype=np.float32)]
        if start == 0:  # a prompt pass up to the first token whose logits are wanted
            done = min(logits_from + 1, len(tokens))
            after_last = self._prompt(slot, tokens[:done])
            if logits_from < len(tokens):
                parts.append(after_last)
        for piece in pieces(len(tokens) - done):
            first = done + piece.first
            logits = self._speculated(slot, start + first, tokens[first : first + piece.size], piece)
            parts.append(logits[max(0, logits_from - first) :])
        return np.concatenate(parts)

    def _prompt(self, slot: int, tokens: Sequence[int]) -> Logits:
        """Run one prompt pass, from cell 0 on. Returns the logits (1, vocab) of the last of `tokens`.

        A prompt of one token gets a padding token: else it would be a pass over a single token. The library returns the
        logits of the token with the greatest cell. So the padding token's cell is given as 0, although the library
        writes it to cell 1.
        """
        count = len(tokens)
        cells = padded(range(count), max(count, 2))
        logits = self._model.forward(
            self._tensor([padded(tokens, len(cells))]), cache_ids=self._tensor([cells]), start_ids=self._tensor([slot])
        )
        return self._array(logits, (1, self.vocabulary.size))

    def _speculated(self, slot: int, start: int, tokens: Sequence[int], piece: Piece) -> Logits:
        """Run one speculative pass, from the cell `start` > 0 on. Returns the logits (len(tokens), vocab)."""
        logits = self._model.speculative_forward(
            self._tensor([padded(tokens, piece.length)]),
            cache_ids=self._tensor([cells_of(start, piece.length, self._cells)]),
            start_ids=self._tensor([slot]),
            speculation_length=piece.length,
        )
        return self._array(logits, (piece.length, self.vocabulary.size, 1))[: piece.size, :, 0]

    def _tensor(self, values: Sequence[Any]) -> Any:
        return self._torch.tensor(values, dtype=self._torch.int32)

    def _array(self, logits: Any, shape: tuple[int, ...]) -> Logits:
        """The library's logits in NumPy. Raises EngineFailure if their shape is not `shape`."""
        if tuple(logits.shape) != shape:
            raise EngineFailure(
                f"transformers-neuronx returned logits of shape {tuple(logits.shape)}, expected was {shape}"
            )
        array: Logits = logits.float().numpy()
        return array

    def _warm_up(self, buckets: Sequence[int], report: Progress) -> None:
        """Run every program once: its first run is slow, and a program that fails should fail at load."""
        programs = len(buckets) + len(LENGTHS)
        with self._torch.inference_mode():
            for done, bucket in enumerate(buckets, start=1):
                self._prompt(0, [0] * (bucket - 1))
                report(_BUILT + (1 - _BUILT) * done / programs)
            for done, length in enumerate(LENGTHS, start=len(buckets) + 1):
                self._speculated(0, 1, [0] * length, Piece(0, length, length))
                report(_BUILT + (1 - _BUILT) * done / programs)


def _check_options(options: LoadOptions) -> None:
    """Raises ModelLoadError for options that this engine cannot honour."""
    options.refuse("neuron_legacy", *_NO_CHOICE)
    if options.kv_type != "f16":  # the default
        raise ModelLoadError(
            f"kv_type {options.kv_type}: neuron_legacy caches in the number type of the model: set dtype", "kv_type"
        )
    if options.device not in (None, "neuron"):
        raise ModelLoadError(f"device {options.device!r}: neuron_legacy runs on 'neuron' only", "device")
    if options.dtype is not None and options.dtype not in TYPES:
        raise ModelLoadError(f"dtype {options.dtype!r} is unknown: choose one of {', '.join(TYPES)}", "dtype")
    for name, value in (("rows", options.slots), ("tensor_parallel", options.tensor_parallel)):
        if value is not None and value < 1:
            raise ModelLoadError(f"{name} is {value}, at least 1 is needed", name)


load = NeuronLegacyBackend


def compiles(_options: LoadOptions) -> bool:
    """Always."""
    return True
