"""Llama models on trn1 and inf2 through transformers-neuronx 0.13, the last of its line.

This backend has not run on the hardware. It is tested on a CPU against a stand-in that treats tokens, positions and
slots as the library's source does (`tests/stand_ins/transformers_neuronx`), and against that source itself, run by an
interpreter (`make test-tnx`).
"""

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from backends.compilation import compilation, folder_of
from backends.hugging_face import model_name, read_vocabulary
from backends.neuron import LEGACY_REQUIREMENTS, claim, import_neuron
from backends.neuron_legacy.compiling import (
    Artefacts,
    ending_with_this_process,
    forget_failures,
    keep_in,
    lacked_memory,
    workers_for,
)
from backends.neuron_legacy.memory import CoreMemory, this_chip
from backends.neuron_legacy.model import TYPES, Checkpoint, cut_no_inputs, made, read_checkpoint
from backends.neuron_legacy.passes import ONE_AT_A_TIME, Passes, PassTokens, Programs, Work, programs_for
from specpair.engines.backend import Backend, Entry, Logits, Progress, overflowed
from specpair.engines.errors import EngineFailure, EngineLost, ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.engines.model_files import read_chat_templates

_log = logging.getLogger("specpair.neuron")
_SLOTS: Final = 4  # where the options leave it to the engine
_CONTEXT_AT_MOST: Final = 4096  # tokens per slot, unless the options ask for more
# The share of the loading that is done at these points. Building the model takes longest and reports no progress.
_READ, _OPENED, _BUILT = 0.02, 0.05, 0.8
_NO_PROGRAM: Final = "matching NEFF"  # in the library's error if a program is not among those that were saved
# Options that the library, its compiler and the chip leave no choice about.
_NO_CHOICE: Final = ("gpu_layers", "threads", "mmap", "flash_attention", "deterministic")

CORES: Final = CoreMemory()  # the memory of this process's cores


class NeuronLegacyBackend(Backend):
    """A Llama model on trn1 or inf2. The entries of a batch share the passes of the device where that pays."""

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
        if self.context_length > checkpoint.trained:
            raise ModelLoadError(
                f"context {self.context_length}: this model was trained for {checkpoint.trained} positions at most",
                "context",
            )
        super().__init__()
        self.max_batch_tokens = max(options.batch_tokens, self.slots, 2)
        self._programs = programs_for(options, self.slots, self.context_length, self.max_batch_tokens)
        dtype = options.dtype or "bfloat16"
        self.runs_on = f"NeuronCores in {dtype}"
        sizes = checkpoint.sizes(self._programs, dtype)
        self._layers = checkpoint.layers
        self._model: Any = None
        self._passes: Passes | None = None
        self._lost: str | None = None  # the reason if no pass can run any more
        try:
            self.devices = CORES.reserve(self, sizes, this_chip(), options.tensor_parallel)
            self.kv_bytes = sizes.kv_bytes(self.devices)
            claim(self.devices)
            neuron = import_neuron("transformers_neuronx", LEGACY_REQUIREMENTS)
            self.vocabulary = read_vocabulary(checkpoint.folder, checkpoint.vocabulary_size)
            self.take_chat_templates(read_chat_templates(checkpoint.folder))
            self._torch = import_module("torch")  # a dependency of transformers-neuronx, too
            report(_READ)
            self._build(neuron, checkpoint, dtype, options, report)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._model = self._passes = None  # this frees the devices' memory
        CORES.release(self)

    def _build(self, neuron: Any, checkpoint: Checkpoint, dtype: str, options: LoadOptions, report: Progress) -> None:
        """Compile and load the model with the library `neuron`. Raises ModelLoadError."""
        programs, folder = self._programs, folder_of(options.compile_cache)
        keep_in(folder)
        workers = options.compile_workers or workers_for(checkpoint.layers, programs.count)
        artefacts = Artefacts(folder, self.model_name, checkpoint.config, programs, dtype, self.devices)

        def make() -> Any:
            return made(neuron, checkpoint, programs, dtype, self.devices, workers)

        try:
            self._model = make()
            report(_OPENED)
            if not self._found_compiled(artefacts):
                self._model = self._model or make()
                forget_failures(folder)
                announced = compilation(self.model_name, programs.count, folder, workers)
                with announced, ending_with_this_process(), ONE_AT_A_TIME:
                    self._model.to_neuron()
                artefacts.save(self._model)
            report(_BUILT)
            cut_no_inputs(self._model)
            self._passes = Passes(self._model, programs, self.vocabulary.size)
            self._warm_up(self._passes, report)
        except ModelLoadError:
            raise
        except Exception as error:  # any type: assertions, errors of the runtime or the compiler
            if lacked_memory(error):
                raise ModelLoadError(
                    f"compile_workers {workers}: the system ended a compiler, as it does when memory runs out: lower "
                    f"it, or use a machine with more memory ({_said(error)})",
                    "compile_workers",
                ) from error
            raise ModelLoadError(f"transformers-neuronx could not load {checkpoint.folder}: {_said(error)}") from error

    def _found_compiled(self, artefacts: Artefacts) -> bool:
        """Load the model with saved programs, if there are any. The model is gone if they do not fit it."""
        if not artefacts.complete:
            return False
        self._model.load(str(artefacts.path))
        try:
            with ONE_AT_A_TIME:
                self._model.to_neuron()
        except OSError as error:
            if _NO_PROGRAM not in str(error):
                raise  # for a weight or a file of the model, or for a file that this user may not read
            self._model = None
            artefacts.discard(str(error))
            return False
        except Exception as error:  # any type: a damaged program is an error of the runtime
            raise ModelLoadError(
                f"transformers-neuronx could not run the programs kept in {artefacts.path}: {_said(error)}; if they "
                "may be damaged, delete this folder: they are compiled again then"
            ) from error
        _log.info("%s: %d programs found compiled in %s", self.model_name, self._programs.count, artefacts.path)
        return True

    def _warm_up(self, passes: Passes, report: Progress) -> None:
        done = 0
        programs = self._programs

        def count() -> None:
            nonlocal done
            done += 1
            report(_BUILT + (1 - _BUILT) * done / programs.count)

        with self._torch.inference_mode():
            passes.warm_up(count)

    def _release(self, slot: int) -> None:
        """Nothing to do: only the lengths in the base class say which cells are valid."""

    def _clear(self, slot: int) -> None:
        """Write all cells anew, as often as there are layers: a layer's keys are finite once those before it were."""
        whole = Entry(slot, 0, [0] * self.context_length, self.context_length - 1)  # its last token attends to all
        try:
            if all(overflowed(self._forward([whole])[0]) for _ in range(self._layers + 1)):
                _log.error("slot %d still holds NaN or infinity", slot)
        except EngineFailure:
            _log.exception("slot %d could not be cleared", slot)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self._lost is not None:
            raise EngineLost(self._lost)
        try:
            with self._torch.inference_mode():
                return self._run(batch)
        except EngineFailure:
            raise
        except Exception as error:  # any type
            failure = f"transformers-neuronx failed: {_said(error)}"
            if not self._works():
                self._lost = f"{failure}; so does every pass since: restart to load the model again"
                raise EngineLost(self._lost) from error
            raise EngineFailure(failure) from error

    def _works(self) -> bool:
        """Whether a pass runs after one that failed. Some errors of the chip and its runtime last until the process
        ends."""
        try:
            self._checked_passes.probe(self._lengths[0])
        except Exception:  # any type
            _log.warning("a forward pass failed after another one", exc_info=True)
            return False
        return True

    def _run(self, batch: Sequence[Entry]) -> list[Logits]:
        """Run the passes of a batch: prompts and continuations one by one, then verify passes in rounds of one piece
        of each entry."""
        runs = [_EntryRun(entry, self._programs) for entry in batch]
        held = list(self._lengths)
        for run in runs:
            run.start(self._checked_passes)
            held[run.slot] = run.held
        while live := [run for run in runs if run.pieces]:
            found = self._checked_passes.verify({run.slot: run.next_work() for run in live}, held)
            for run in live:
                run.take(found[run.slot])
                held[run.slot] = run.held
        return [run.parts[0] if len(run.parts) == 1 else np.concatenate(run.parts) for run in runs]

    @property
    def _checked_passes(self) -> Passes:
        assert self._passes is not None, "the backend is closed"
        return self._passes


class _EntryRun:
    """One entry of a batch on its way through its passes."""

    def __init__(self, entry: Entry, programs: Programs) -> None:
        self.slot = entry.slot
        self.held = entry.start  # tokens in the slot so far
        self.pieces: list[PassTokens] = []  # what is left to verify, in order
        self.parts: list[Logits] = []  # the wanted logits of the passes so far
        self._entry, self._programs, self._done = entry, programs, 0

    def start(self, passes: Passes) -> None:
        """Run what is not shared with other entries: the prompt pass of an entry from cell 0 on, and continuations."""
        _, start, tokens, logits_from, _ = self._entry
        if start == 0:  # a prompt pass up to the first token whose logits are wanted, if it is wide enough
            self._done = min(logits_from + 1, len(tokens), self._programs.prompts[-1])
            after_last = passes.prompt(self.slot, tokens[: self._done])
            self._advance(self._done, after_last, self._done - 1)
        self.pieces = self._programs.pieces(len(tokens) - self._done, max(0, logits_from - self._done))
        while self.pieces and self.pieces[0].last_only:
            piece = self.pieces[0]
            after_last = passes.continuation(self.slot, self.next_work(), piece.width)
            self._advance(piece.size, after_last, self._done + piece.first + piece.size - 1)
            del self.pieces[0]

    def next_work(self) -> Work:
        """The cell of the first token of the next piece, and its tokens."""
        piece, tokens = self.pieces[0], self._entry.tokens
        first = self._done + piece.first
        return self._entry.start + first, tokens[first : first + piece.size]

    def take(self, logits: Logits) -> None:
        """Take the logits of the next piece, whose pass has run."""
        piece = self.pieces.pop(0)
        self._advance(piece.size, logits, self._done + piece.first)

    def _advance(self, count: int, logits: Logits, first: int) -> None:
        """Note that `count` tokens were fed, and keep the wanted rows of `logits`, whose first one follows the token at
        index `first`."""
        self.held += count
        self.parts.append(logits[max(0, self._entry.logits_from - first) :])


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


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
    for name, value in (("slots", options.slots), ("tensor_parallel", options.tensor_parallel)):
        if value is not None and value < 1:
            raise ModelLoadError(f"{name} is {value}, at least 1 is needed", name)


load = NeuronLegacyBackend


def compiles(_options: LoadOptions) -> bool:
    """Always."""
    return True


def programs_folder(options: LoadOptions) -> str | None:
    """Where compiled programs are kept; None: nowhere. Raises ModelLoadError."""
    folder = folder_of(options.compile_cache)
    return None if folder is None else str(folder)
