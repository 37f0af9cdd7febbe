"""Models of Hugging Face transformers on PyTorch: one code path for CPU, CUDA, Metal and Trainium.

All slots share one cache of fixed shape (`backends.torch.cache`), and batches become launches of few shapes
(`backends.buckets`). So a compiler compiles each shape once, when the model is loaded. Recurrent and hybrid models are
not compiled; they roll back by `backends.recurrent`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.buckets import NARROW, Launch
from backends.compilation import compilation, folder_of
from backends.hugging_face import model_name
from backends.machine import check_room, slots_that_fit
from backends.recurrent import POINTS, RecurrentStates
from backends.torch.cache import SlotCache, check_continues, check_settings, kept_shapes
from backends.torch.compiling import NEURON, buckets, check_compilation, spans
from backends.torch.launch import LaunchInputs, LaunchModule, Masks, Numbers, cache_name, group_queries, logits_of
from backends.torch.mtp_head import MOST_DRAFTED, TorchHead, read_head
from backends.torch.read_model import (
    Reader,
    check_fits,
    check_options,
    context_of,
    find_device,
    find_dtype,
    free_bytes,
    load_model,
    load_vocabulary,
)
from backends.torch.top_logits import NEURON_CHUNK, Region, select_top_logits, warm
from specpair.engines.backend import Backend, Entry, HeadEntry, Logits, Progress, Rows, TopLogitsSpec
from specpair.engines.errors import EngineFailure, ModelLoadError, first_line
from specpair.engines.load_options import LoadOptions

T = TypeVar("T")
_log = logging.getLogger("specpair.torch")
_SLOTS = 4  # where the options leave it to the engine, and the free memory is unknown
_LOADED = 0.3  # share of the loading that is done before compilation


class TorchBackend(Backend):
    """A model of transformers on one device.

    `compiler`: torch.compile's backend; None: nothing is compiled.
    `has_top_logits`: whether top logits are selected on the device; None: on every device but a CPU. `read` loads the
        model's weights; the vocabulary is always that of the folder or file in the options.
    """

    name = "torch"

    def __init__(
        self,
        options: LoadOptions,
        progress: Progress | None = None,
        *,
        compiler: str | None = None,
        has_top_logits: bool | None = None,
        read: Reader = load_model,
    ) -> None:
        """Load the model in `options.model`; `progress` gets the share done, 0 to 1. Raises ModelLoadError."""
        report = progress or (lambda fraction: None)
        check_options(options)
        check_compilation(options, compiler)
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self._device = find_device(options.device)
        self.threads = torch.get_num_threads() if self._device.type == "cpu" else 0
        self.has_top_logits = self._device.type != "cpu" if has_top_logits is None else has_top_logits
        dtype = find_dtype(options.dtype, self._device)
        named = f" ({torch.cuda.get_device_name(self._device)})" if self._device.type == "cuda" else ""
        self.runs_on = f"{self._device}{named} in {str(dtype).removeprefix('torch.')}"
        if compiler == NEURON and (free := self._free_bytes()) is not None:
            check_fits(options, dtype, self.devices, free)
        model = read(options.model, options, self._device, dtype)
        assert options.model is not None
        group_queries(model)
        self.model_name = model_name(options.model)
        config = model.config.get_text_config()
        family = f"{self.model_name} ({config.model_type})"
        masks = Masks(config, family, dtype)
        self.context_length = context_of(config, options.context_length)
        with torch.no_grad():
            one = torch.zeros(1, 1, dtype=torch.int64, device=self._device)
            mask, name = masks.of(one, 1), cache_name(model)
            shapes = kept_shapes(lambda probe: logits_of(model, one, one, mask, {name: probe}), family)
        if shapes.states:
            check_settings(options, compiler, family)
        head = read_head(model, options, compiler, bool(shapes.states), self.context_length)
        if head is not None:
            self.head_depth = MOST_DRAFTED
            shapes.tokens |= head.shapes
        self.vocabulary, templates = load_vocabulary(options.model, _ids(model))
        self.take_chat_templates(templates)
        if self.vocabulary.size > _ids(model):
            raise ModelLoadError(f"{self.model_name} has {_ids(model)} ids, its vocabulary {self.vocabulary.size}")
        token_bytes, slot_bytes = shapes.token_bytes(dtype), shapes.state_bytes * (1 + POINTS)
        free = self._free_bytes()
        usual = _SLOTS if free is None else slots_that_fit(token_bytes * self.context_length + slot_bytes, free)
        self.slots = options.slots or usual
        self.max_batch_tokens = max(options.batch_tokens, self.slots, 2)
        self._buckets = buckets(options, compiler, self.slots, self.max_batch_tokens, even=bool(shapes.states))
        positions = self.context_length + max(self._buckets.padding, self.head_depth)
        self._spans = spans(options, compiler, self.context_length, positions)
        self.kv_bytes = (token_bytes * positions + slot_bytes) * self.slots
        if free is not None:
            check_room(self, free)
        self._cache = SlotCache(shapes, self.slots, positions, dtype, self._device)
        self._head = None if head is None else TorchHead(head, self._cache, self.max_batch_tokens, self.vocabulary.size)
        self._reach = [0] * self.slots  # positions of each slot that were written to since its release
        self._run: Any = LaunchModule(model, self._cache, masks, self.context_length)
        self._compiled = compiler is not None
        self.max_nodes = self._buckets.most_nodes
        self.takes_trees = not shapes.states and compiler != NEURON and self.max_nodes > 0
        self._moves: list[tuple[int, int, int]] = []  # slot, place and target of tokens of trees that were kept
        self._chains: dict[tuple[int, ...], Tensor] = {}  # `seen` of compiled launches without trees, by their shape
        self._chunk = NEURON_CHUNK if compiler == NEURON else None
        self._replayed = compiler == "inductor" and self._device.type == "cuda"
        super().__init__()
        self._states: RecurrentStates | None = None  # None: attention in every layer
        if shapes.states:
            check_continues(self, dtype, family)
            self._states = RecurrentStates(
                self._cache, self.slots, self._read, self.max_batch_tokens, self.vocabulary.size, shapes.takes_back
            )
        if compiler is not None:
            launches = [(*shape, span) for shape in self._buckets.shapes() for span in self._spans if shape[1] <= span]
            try:
                with compilation(self.model_name, len(launches), folder_of(options.compile_cache)):
                    self._compile(compiler, launches, report)
            except Exception as error:  # a compiler that is not installed, an operation that it does not support
                advice = "" if compiler == NEURON else "; without compile it would run"
                reason = first_line(getattr(error, "inner_exception", None) or error)  # TorchDynamo wraps a compiler's
                raise ModelLoadError(
                    f"{self.model_name} could not be compiled with {compiler}: {reason}{advice}"
                ) from error
        report(1.0)

    def close(self) -> None:
        self._run = self._cache = self._states = self._head = None  # type: ignore[assignment]

    def _free_bytes(self) -> int | None:
        """Bytes of memory that are free on the device; None: unknown."""
        return free_bytes(self._device)

    def _compile(self, compiler: str, shapes: Sequence[tuple[int, int, int]], report: Progress) -> None:
        """Compile for every shape (slots, tokens per slot, span) now: a new shape later would delay all requests."""
        # CUDA can replay a whole launch as one graph, since the addresses are fixed. Other devices cannot.
        mode = {"mode": "reduce-overhead"} if self._replayed else {}
        torch._dynamo.config.recompile_limit += len(shapes)  # the same code is compiled for each shape of each model
        torch._dynamo.config.accumulated_recompile_limit += len(shapes)
        self._run = torch.compile(self._run, backend=compiler, dynamic=False, fullgraph=True, **mode)
        for done, (count, width, span) in enumerate(shapes):
            report(_LOADED + (1.0 - _LOADED) * done / len(shapes))
            slots = list(range(count))
            pieces = [Entry(slot, 0, [0], 0) for slot in slots]
            for _ in range(2 if mode else 1):  # CUDA records a graph in the second run only
                logits = self._launch(Launch((count, width), pieces, slots), slots, span)
            size = self.vocabulary.size
            self.has_top_logits = self.has_top_logits and warm(logits, size, self._chunk, self.model_name)
        for span in self._spans:
            self._write("copy", 0, self.slots - 1, span)
            self._write("clear", 0, span)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        def fetch(logits: Tensor, owners: list[int], regions: list[Region]) -> list[Logits]:
            numbers = logits.cpu().to(torch.float32).numpy()  # on the device, this would be one more thing to compile
            return [numbers[at, kept, : self.vocabulary.size] for at, kept in regions]

        each = self._launched(batch, fetch)
        return [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in each]

    def _extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> list[Rows]:
        def select(logits: Tensor, owners: list[int], regions: list[Region]) -> list[Rows]:
            return select_top_logits(logits, [wanted[owner] for owner in owners], regions, self._chunk)

        def joined(parts: list[Rows]) -> Rows:
            whole = [part for part in parts if isinstance(part, np.ndarray)]  # then all others are empty
            if whole:
                return whole[0] if len(whole) == 1 else np.concatenate(whole)
            return [top for part in parts for top in part]

        return [joined(parts) for parts in self._launched(batch, select)]

    def reread(self, slot: int, length: int) -> int:
        self._check_slot(slot)
        return 0 if self._states is None else self._states.reread(slot, length)

    def _launched(
        self, batch: Sequence[Entry], take: Callable[[Tensor, list[int], list[Region]], list[T]]
    ) -> list[list[T]]:
        """Run the launches of a batch. Returns, per entry, the results of `take` for its part of each launch.

        `take` gets the logits of a launch (slots, kept, vocabulary) and, for each of its pieces, the index of the entry
        in `batch` and the region of the logits. Raises EngineFailure.
        """
        try:
            if self._states is not None:
                batch = [self._states.prepared(entry) for entry in batch]
            return self._run_launches(batch, take)
        except Exception as error:  # any type: it fails this pass, later passes may succeed
            _log.warning("a forward pass failed", exc_info=True)
            raise EngineFailure(f"PyTorch failed in a forward pass: {first_line(error)}") from error

    def _read(self, entry: Entry) -> None:
        self._run_launches([entry], lambda logits, owners, regions: [None] * len(regions))

    def _run_launches(
        self, batch: Sequence[Entry], take: Callable[[Tensor, list[int], list[Region]], list[T]]
    ) -> list[list[T]]:
        self._move()
        parts: list[list[T]] = [[] for _ in batch]
        for launch in self._buckets.launches(batch):
            slots = launch.slots(self._lengths)
            logits = self._launch(launch, slots)
            regions = [(slots.index(piece.slot), launch.returned(piece)) for piece in launch.pieces]
            for owner, part in zip(launch.owners, take(logits, launch.owners, regions), strict=True):
                parts[owner].append(part)
        return parts

    def _launch(self, launch: Launch, slots: list[int], span: int | None = None) -> Tensor:
        """Run a launch over `slots`, with attention over `span` positions; None: as many as the launch needs.

        Returns logits (slots, kept, vocabulary), on the device.
        """
        count, width = launch.shape
        by_slot = {piece.slot: piece for piece in launch.pieces}
        tokens = np.zeros((count, width), np.int64)
        starts = np.zeros(count, np.int64)
        for at, slot in enumerate(slots):
            piece = by_slot.get(slot)
            starts[at] = self._filled(slot) if piece is None else piece.start  # padding goes behind the valid tokens
            if piece is not None:
                tokens[at, : len(piece.tokens)] = piece.tokens
            self._reach[slot] = max(self._reach[slot], int(starts[at]) + width)
        if span is None:
            span = self._span(int(starts.max()) + width)
        kept: Numbers | int = 0
        if width > NARROW:
            first = launch.pieces[0].logits_from
            kept = np.arange(first, first + NARROW).clip(max=width - 1)
        seen = launch.seen([by_slot.get(slot) for slot in slots])
        whole = count == self.slots
        inputs = LaunchInputs(tokens, np.array(slots, np.int64), starts, kept, span=span, whole=whole, seen=seen)
        logits = self._pass(inputs)
        if self._head is not None:
            self._head.passed(launch.pieces)
        return logits.clone() if self._replayed else logits  # the next launch of this shape writes to the same memory

    def _span(self, positions: int) -> int:
        """The span of attention for `positions` positions: that number, or the next compiled span."""
        return next(span for span in self._spans if span >= positions) if self._compiled else positions

    def _filled(self, slot: int) -> int:
        """How many cells of a slot its tokens and the last draft tree fill."""
        tree = self._trees[slot]
        return self._lengths[slot] if tree is None else tree.start + len(tree.tokens)

    def _pass(self, inputs: LaunchInputs) -> Tensor:
        """Move the inputs to the device and run the model."""
        *numbers, span, whole, seen = inputs
        moved = (each if isinstance(each, int) else torch.from_numpy(each).to(self._device) for each in numbers)
        with torch.no_grad():
            logits: Tensor = self._run(*moved, span, whole, self._seen(inputs.tokens.shape, seen))
        return logits

    def _seen(self, shape: tuple[int, ...], seen: NDArray[np.bool_] | None) -> Tensor | None:
        """`seen` on the device. A compiled launch that may have trees always gets it: one program runs both."""
        if seen is not None:
            return torch.from_numpy(seen).to(self._device)
        count, width = shape
        if not (self._compiled and self.takes_trees and 1 < width <= NARROW):
            return None
        if shape not in self._chains:
            chains = np.tile(np.tri(width, dtype=np.bool_), (count, 1, 1))
            self._chains[shape] = torch.from_numpy(chains).to(self._device)
        return self._chains[shape]

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        """Record moves. They run before the next pass, for all slots together, since each layer takes a call."""
        moves = [(entry.slot, entry.start + at, target) for target, at in enumerate(path, entry.start + entry.trunk)]
        self._moves += [each for each in moves if each[1] != each[2]]
        if self._head is not None:
            self._head.moved(moves)

    def _move(self) -> None:
        """Run the recorded moves. Empties their slots and raises EngineFailure if that fails."""
        if not self._moves:
            return
        slots, places, targets = zip(*self._moves, strict=True)
        try:
            self._write("move", slots, places, targets)
        except EngineFailure:
            for slot in set(slots):
                self.release(slot)
            raise
        self._moves = []

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._move()
        span = self._span(length)
        if self._states is not None:
            self._release(destination)
        self._reach[destination] = max(self._reach[destination], span)
        self._write("copy", source, destination, span)
        if self._head is not None:
            self._head.copied(source, destination, length)

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        assert self._head is not None
        self._move()
        for slot, start, tail in batch:
            self._reach[slot] = max(self._reach[slot], start + len(tail))
        try:
            return self._head.extend(batch)
        except Exception as error:  # any type: it fails these drafts, later ones may succeed
            _log.warning("a step of the model's MTP head failed", exc_info=True)
            raise EngineFailure(f"PyTorch failed in the model's MTP head: {first_line(error)}") from error

    def _release(self, slot: int) -> None:
        """Clear the slot: attention hides stale values, but a masked NaN or infinity would still spread."""
        self._moves = [each for each in self._moves if each[0] != slot]
        if self._reach[slot]:
            self._write("clear", slot, self._span(self._reach[slot]))
            self._reach[slot] = 0
        if self._head is not None:
            self._head.cut(slot, 0)
        if self._states is not None:
            self._states.forget(slot)

    def _write(self, verb: str, *arguments: Any) -> None:
        """Call the cache's method `verb`: "copy", "clear" or "move". `RecurrentStates` copies states. Raises
        EngineFailure."""
        owner = self._states if self._states is not None and verb == "copy" else self._cache
        try:
            with torch.no_grad():
                getattr(owner, verb)(*arguments)
        except RuntimeError as error:
            raise EngineFailure(f"PyTorch failed to {verb} a slot: {first_line(error)}") from error


def _ids(model: Any) -> int:
    """The number of ids that the model gives logits for."""
    return int(model.get_output_embeddings().weight.shape[0])
