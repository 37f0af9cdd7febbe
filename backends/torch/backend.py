"""Models of Hugging Face transformers on PyTorch: on CPU, CUDA, Metal and Trainium by one code path.

All rows share one cache of fixed shape (`torch_cache`), and batches become launches of few shapes (`buckets`), so that
a compiler sees each of them once, when the model is loaded. Taking tokens back is a smaller start.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from backends.base import (
    Backend,
    EngineFailure,
    Entry,
    HeadOf,
    LoadOptions,
    Logits,
    ModelLoadError,
    Progress,
    first_line,
)
from backends.buckets import NARROW, Buckets, Launch
from backends.machine import available_bytes, check_room, rows_that_fit
from backends.neuron.install import REQUIREMENTS, import_neuron
from backends.torch.attention import group_queries
from backends.torch.cache import RowCache, View, layer_shapes
from backends.torch.loading import (
    Masks,
    Reader,
    check_options,
    context_of,
    find_device,
    find_dtype,
    load_model,
    load_vocabulary,
    model_name,
)
from backends.torch.top_logits import Place, heads_of, warm
from speculation.sampling.top_logits import TopLogits

T = TypeVar("T")
_log = logging.getLogger("specpair.torch")
NEURON = "neuron"  # a kind of device, and the compiler for it
_SPAN = 1024  # places that the shortest look back covers where shapes are compiled; each next covers four times that
_MEASURED = ("cpu", "mps", "cuda")  # devices of which it is known how much memory is left
_ROWS = 4  # for `auto` on others
_LOADED = 0.3  # of the progress, if something is compiled after it


class _Step(torch.nn.Module):  # type: ignore[misc]
    """One launch: (rows, tokens) ids in, (rows, kept, vocabulary) logits out, the cache written on the way."""

    def __init__(self, model: Any, cache: RowCache, masks: Masks, context_length: int) -> None:
        super().__init__()
        self.model, self.cache = model, cache
        self._masks, self._last = masks, context_length - 1

    def forward(
        self, tokens: Tensor, rows: Tensor, starts: Tensor, kept: Tensor | int, span: int, whole: bool
    ) -> Tensor:
        """`tokens` (rows, tokens), int64. `rows`, `starts` (rows,): whose tokens they are, and from which position on.

        `kept`: tokens of each row that get logits, as an index; 0: all. `span`: places to look back over. `whole`:
        `rows` are all, in their order.
        """
        positions = starts[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        mask = self._masks.of(positions, span)
        places = positions.clamp(max=self._last)  # padding lies beyond what the model knows
        return _logits(self.model, tokens, places, mask, View(self.cache, rows, positions, span, whole), kept)


def _logits(model: Any, tokens: Tensor, positions: Tensor, mask: Any, cache: Any, kept: Tensor | int = 0) -> Tensor:
    """Everything that transformers would work out by itself from one length for all rows is given."""
    logits: Tensor = model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=kept,
    ).logits
    return logits


class TorchBackend(Backend):
    """See the module. `compiler`: of torch.compile, None: nothing is compiled. `has_heads`: None: on all but CPUs.

    `read` gets the model; the vocabulary is always that of the folder or file in the options.
    """

    name = "torch"

    def __init__(
        self,
        options: LoadOptions,
        progress: Progress | None = None,
        *,
        compiler: str | None = None,
        has_heads: bool | None = None,
        read: Reader = load_model,
    ) -> None:
        report = progress or (lambda fraction: None)
        check_options(options)
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self._device = find_device(options.device)
        self.has_heads = self._device.type != "cpu" if has_heads is None else has_heads
        dtype = find_dtype(options.dtype, self._device)
        model = read(options.model, options, self._device, dtype)
        assert options.model is not None
        group_queries(model)
        self.model_name = model_name(options.model)
        config = model.config.get_text_config()
        masks = Masks(config, self.model_name, dtype)
        self.context_length = context_of(config, options.context_length)
        with torch.no_grad():
            one = torch.zeros(1, 1, dtype=torch.int64, device=self._device)
            layers = layer_shapes(lambda probe: _logits(model, one, one, masks.of(one, 1), probe), self.model_name)
        self.vocabulary, self.chat_template = load_vocabulary(options.model, _ids(model))
        if self.vocabulary.size > _ids(model):
            raise ModelLoadError(f"{self.model_name} has {_ids(model)} ids, its vocabulary {self.vocabulary.size}")
        each = sum(layer.numbers for layer in layers) * dtype.itemsize
        self.rows = options.rows or self._rows_that_fit(each * self.context_length)
        self.max_batch_tokens = max(options.batch_tokens, self.rows, 2)
        self._buckets = Buckets(self.rows, self.max_batch_tokens, compiled=compiler is not None)
        positions = self.context_length + self._buckets.padding
        self.kv_bytes = each * positions * self.rows
        if self._device.type in _MEASURED:
            check_room(self, self._free_bytes())
        self._cache = RowCache(layers, self.rows, positions, dtype, self._device)
        self._reach = [0] * self.rows  # places of each row that have been written to since it was released
        self._run: Any = _Step(model, self._cache, masks, self.context_length)
        self._spans = _spans(positions)
        self._compiled = compiler is not None
        self._replayed = compiler == "inductor" and self._device.type == "cuda"
        super().__init__()
        if compiler is not None:
            try:
                self._compile(compiler, report)
            except Exception as error:  # a compiler that is not there, an operation that it does not know
                leave = "" if compiler == NEURON else "; without compile it would run"
                raise ModelLoadError(
                    f"{self.model_name} could not be compiled with {compiler}: {first_line(error)}{leave}"
                ) from error
        report(1.0)

    def close(self) -> None:
        self._run = self._cache = None  # type: ignore[assignment]

    def _rows_that_fit(self, bytes_per_row: int) -> int:
        return rows_that_fit(bytes_per_row, self._free_bytes()) if self._device.type in _MEASURED else _ROWS

    def _free_bytes(self) -> int:
        if self._device.type == "cuda":
            return int(torch.cuda.mem_get_info(self._device)[0])
        return available_bytes()

    def _compile(self, compiler: str, report: Progress) -> None:
        """Compile for each shape there is: later, one that is new would hold everybody up for as long as that takes."""
        shapes = [(*shape, span) for shape in self._buckets.shapes() for span in self._spans if shape[1] <= span]
        # Fixed addresses let CUDA replay a whole launch as one graph; elsewhere there is nothing of the kind.
        mode = {"mode": "reduce-overhead"} if self._replayed else {}
        torch._dynamo.config.recompile_limit += len(shapes)  # one code, many shapes: and that for each model loaded
        torch._dynamo.config.accumulated_recompile_limit += len(shapes)
        self._run = torch.compile(self._run, backend=compiler, dynamic=False, fullgraph=True, **mode)
        for done, (rows, width, span) in enumerate(shapes):
            report(_LOADED + (1.0 - _LOADED) * done / len(shapes))
            pieces = [Entry(row, 0, [0], 0) for row in range(rows)]
            # Twice: CUDA records a graph only in the second run.
            for _ in range(2 if mode else 1):
                logits = self._launch(Launch((rows, width), pieces, list(range(rows))), list(range(rows)), span)
            if self.has_heads:
                warm(logits, self.vocabulary.size)
        for span in self._spans:
            self._write("copy", 0, self.rows - 1, span)
            self._write("clear", 0, span)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        def fetch(logits: Tensor, owners: list[int], places: list[Place]) -> list[Logits]:
            numbers = logits.to(torch.float32).cpu().numpy()
            return [numbers[row, kept, : self.vocabulary.size] for row, kept in places]

        each = self._launched(batch, fetch)
        return [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in each]

    def _heads(self, batch: Sequence[Entry], wanted: Sequence[HeadOf]) -> list[list[TopLogits]]:
        def select(logits: Tensor, owners: list[int], places: list[Place]) -> list[list[TopLogits]]:
            return heads_of(logits, [wanted[owner] for owner in owners], places)

        return [[head for part in each for head in part] for each in self._launched(batch, select)]

    def _launched(
        self, batch: Sequence[Entry], take: Callable[[Tensor, list[int], list[Place]], list[T]]
    ) -> list[list[T]]:
        """Run the launches of a batch; per entry, what `take` makes of its part of each.

        `take` gets the logits of a launch (rows, kept, vocabulary), which entries have a part of it, and where.
        """
        parts: list[list[T]] = [[] for _ in batch]
        try:
            for launch in self._buckets.launches(batch):
                rows = self._rows_of(launch)
                logits = self._launch(launch, rows)
                places = [(rows.index(piece.row), launch.places(piece)) for piece in launch.pieces]
                for owner, part in zip(launch.owners, take(logits, launch.owners, places), strict=True):
                    parts[owner].append(part)
        except Exception as error:  # whatever a model of the library meets is the end of this pass, and of no other
            _log.warning("a forward pass failed", exc_info=True)
            raise EngineFailure(f"PyTorch failed in a forward pass: {first_line(error)}") from error
        return parts

    def _rows_of(self, launch: Launch) -> list[int]:
        """Rows of the cache that a launch is over: those of its pieces, and others to fill up its shape."""
        if launch.shape[0] == self.rows:
            return list(range(self.rows))
        taken = [piece.row for piece in launch.pieces]
        others = sorted(set(range(self.rows)) - set(taken), key=self._lengths.__getitem__)  # short: less to look over
        return [*taken, *islice(others, launch.shape[0] - len(taken))]

    def _launch(self, launch: Launch, rows: list[int], span: int | None = None) -> Tensor:
        """Logits of shape (rows, kept, vocabulary), on the device."""
        count, width = launch.shape
        by_row = {piece.row: piece for piece in launch.pieces}
        tokens = torch.zeros(count, width, dtype=torch.int64)
        starts = torch.zeros(count, dtype=torch.int64)
        for at, row in enumerate(rows):
            piece = by_row.get(row)
            starts[at] = self._lengths[row] if piece is None else piece.start  # what pads lies behind what counts
            if piece is not None:
                tokens[at, : len(piece.tokens)] = torch.tensor(piece.tokens)
            self._reach[row] = max(self._reach[row], int(starts[at]) + width)
        if span is None:
            span = self._span(int(starts.max()) + width)
        kept: Tensor | int = 0
        if width > NARROW:
            first = launch.pieces[0].logits_from
            kept = torch.arange(first, first + NARROW).clamp(max=width - 1)
        logits = self._pass(tokens, torch.tensor(rows), starts, kept, span, count == self.rows)
        return logits.clone() if self._replayed else logits  # the next launch of this shape writes to the same memory

    def _span(self, places: int) -> int:
        """How many places to go over where so many are needed: one of few numbers where each is compiled."""
        return next(span for span in self._spans if span >= places) if self._compiled else places

    def _pass(self, tokens: Tensor, rows: Tensor, starts: Tensor, kept: Tensor | int, span: int, whole: bool) -> Tensor:
        """Run the model on inputs that are not on the device yet."""
        inputs = (each if isinstance(each, int) else each.to(self._device) for each in (tokens, rows, starts, kept))
        with torch.no_grad():
            logits: Tensor = self._run(*inputs, span, whole)
        return logits

    def _copy(self, source: int, destination: int, length: int) -> None:
        span = self._span(length)
        self._reach[destination] = max(self._reach[destination], span)
        self._write("copy", source, destination, span)

    def _release(self, row: int) -> None:
        """What lies beyond a text is not looked at; but it counts if it is no number, as where a model overflowed."""
        if self._reach[row]:
            self._write("clear", row, self._span(self._reach[row]))
            self._reach[row] = 0

    def _write(self, verb: str, *arguments: int) -> None:
        """Have the cache `copy` or `clear`."""
        try:
            with torch.no_grad():
                getattr(self._cache, verb)(*arguments)
        except RuntimeError as error:
            raise EngineFailure(f"PyTorch failed to {verb} a row: {first_line(error)}") from error


def load(options: LoadOptions, progress: Progress | None = None, *, read: Reader = load_model) -> TorchBackend:
    """Load a model folder or a GGUF file; `read` as for `TorchBackend`. Raises ModelLoadError."""
    kind = find_device(None).type if options.device is None else options.device.partition(":")[0]
    compiler = "inductor" if options.compile else None
    if kind == NEURON:  # where models are always compiled
        import_neuron("torch_neuronx", REQUIREMENTS)  # which adds the device to PyTorch
        compiler = NEURON
    if options.tensor_parallel > 1:
        if read is not load_model:
            raise ModelLoadError("tensor_parallel: a model that is no file cannot be spread over devices: leave it out")
        from backends.torch.tensor_parallel import LeadingPart  # which needs this module, and nobody else needs

        return LeadingPart(options, progress, compiler=compiler)
    return TorchBackend(options, progress, compiler=compiler, read=read)


def _spans(positions: int) -> list[int]:
    """How far back launches may look: few distances where each is compiled."""
    spans = [_SPAN]
    while spans[-1] < positions:
        spans.append(4 * spans[-1])
    return [*spans[:-1], positions]


def _ids(model: Any) -> int:
    """Ids that the model gives logits for."""
    return int(model.get_output_embeddings().weight.shape[0])
