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
from backends.neuron_legacy.passes import ONE_AT_A_TIME, Passes, PassTokens, Work, programs_for
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
            with self._torch.inference_mode():
                for done, _ in enumerate(self._passes.warm_up(), 1):
                    report(_BUILT + (1 - _BUILT) * done / programs.count)
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
        """Load the model with saved programs, if there are any. If they do not fit, this drops the model."""
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
        """Whether a pass works after a failed one. Some errors of the chip and its runtime last until the process
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
        passes, held = self._checked_passes, list(self._lengths)
        parts: dict[int, list[Logits]] = {entry.slot: [] for entry in batch}  # wanted logits, by slot
        shared: dict[int, list[PassTokens]] = {}  # pieces in verify passes, by slot

        def take(entry: Entry, end: int, logits: Logits, first: int) -> None:
            """`end`: how many of its tokens are fed. `first`: index of the token that the first row follows."""
            held[entry.slot] = entry.start + end
            parts[entry.slot].append(logits[max(0, entry.logits_from - first) :])

        def work(entry: Entry, piece: PassTokens) -> Work:
            return entry.start + piece.first, entry.tokens[piece.first : piece.first + piece.size]

        for entry in batch:
            slot, start, tokens, logits_from, _ = entry
            held[slot], done = start, 0
            if start == 0:  # a prompt pass up to the first token whose logits are wanted, if it is wide enough
                done = min(logits_from + 1, len(tokens), self._programs.prompts[-1])
                take(entry, done, passes.prompt(slot, tokens[:done]), done - 1)
            pieces = self._programs.pieces(len(tokens) - done, max(0, logits_from - done))
            pieces = [piece._replace(first=done + piece.first) for piece in pieces]
            for piece in (each for each in pieces if each.last_only):
                end = piece.first + piece.size
                take(entry, end, passes.continuation(slot, work(entry, piece), piece.width), end - 1)
            shared[slot] = [each for each in pieces if not each.last_only]
        for turn in range(max(map(len, shared.values()), default=0)):
            live = [(entry, shared[entry.slot][turn]) for entry in batch if turn < len(shared[entry.slot])]
            found = passes.verify({entry.slot: work(entry, piece) for entry, piece in live}, held)
            for entry, piece in live:
                take(entry, piece.first + piece.size, found[entry.slot], piece.first)
        return [each[0] if len(each) == 1 else np.concatenate(each) for each in parts.values()]

    @property
    def _checked_passes(self) -> Passes:
        assert self._passes is not None, "the backend is closed"
        return self._passes


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
    """The folder for compiled programs; None: none. Raises ModelLoadError."""
    folder = folder_of(options.compile_cache)
    return None if folder is None else str(folder)
