"""The mlx engine: models of mlx-lm, on Apple silicon and, with MLX's build for CPUs, on Linux.

Each slot has a cache of mlx-lm, which a rollback trims at its end. MLX is lazy: it computes a result only when it is
evaluated, and only on the thread that created it. So every call here evaluates all its results before it returns.

In mlx-lm the tokens of a line stand at positions in a row. Those of a tree do not: so each rotary embedding of a model
is wrapped, and takes a position for each token, too. Whether a model's trees are right is tried when it is loaded.
"""

import copy
from collections.abc import Sequence
from inspect import signature
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.utils import load_model
from numpy.typing import NDArray

from backends.buckets import NARROW, Buckets, Launch
from backends.hugging_face import check_folder, model_name, read_vocabulary
from backends.machine import available_bytes, check_room, cores_to_use, slots_that_fit
from specpair.engines.backend import Backend, Entry, Logits, Progress
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import COMPILATION, FreeMemory, LoadOptions
from specpair.engines.model_files import read_chat_templates, read_json

_TRIED: Final = 8  # tokens in front of the one whose logits tell whether a model's trees are right
_APART: Final = 0.05  # how much these may differ, as a share of the greatest: weights and sums may have 16 bits
_NO_CHOICE: Final = ("gpu_layers", "threads", "kv_type", "mmap", "flash_attention", "deterministic", "device")


class _BatchedCache:
    """One layer's cache of several slots at different positions, in the form that a model's pass expects."""

    def __init__(self, layers: Sequence[Any], seen: NDArray[np.bool_] | None = None) -> None:
        """`seen`: which of the new tokens each attends to, as `Launch.seen` returns it."""
        self._layers, self._longest, self._seen = layers, max(layer.offset for layer in layers), seen
        self.offset = mx.array([layer.offset for layer in layers])
        if seen is not None:  # a position for each token, which `_AnyPositions` takes
            self.offset = self.offset[:, None] + mx.array(seen.sum(2) - 1)

    def make_mask(self, count: int, **_: Any) -> Any:
        """Boolean (slots, 1, count, positions): the positions each new token attends to, by causal attention.

        Models with sliding windows are never loaded.
        """
        if self._seen is not None:
            mask = np.zeros((len(self._layers), 1, count, self._longest + count), np.bool_)
            for line, layer, seen in zip(mask[:, 0], self._layers, self._seen, strict=True):
                line[:, : layer.offset] = True
                line[:, layer.offset : layer.offset + count] = seen
            return mx.array(mask)
        return mx.arange(self._longest + count) <= (self.offset[:, None] + mx.arange(count))[:, None, :, None]

    def update_and_fetch(self, keys: Any, values: Any) -> list[Any]:
        """Append each slot's new keys and values. Returns all, padded to the longest slot's: the mask hides padding."""
        self.offset, longest = self.offset + keys.shape[2], self._longest + keys.shape[2]
        held = [layer.update_and_fetch(keys[at, None], values[at, None]) for at, layer in enumerate(self._layers)]
        ends = [[(0, 0), (0, 0), (0, longest - layer.offset), (0, 0)] for layer in self._layers]
        return [mx.concatenate(list(map(mx.pad, slots, ends))) for slots in zip(*held, strict=True)]


class _AnyPositions(nn.Module):  # type: ignore[misc]
    """A model's rotary embedding that also takes a position for each token, not only for each line's first."""

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.embedding = embedding

    def __call__(self, inputs: Any, offset: Any = 0) -> Any:
        """`inputs`: (lines, heads, tokens, width); `offset`: a number, (lines,), or (lines, tokens)."""
        if not isinstance(offset, mx.array) or offset.ndim < 2:
            return self.embedding(inputs, offset=offset)
        lines, heads, tokens, width = inputs.shape
        apart = inputs.swapaxes(1, 2).reshape(lines * tokens, heads, 1, width)
        return self.embedding(apart, offset=offset.flatten()).reshape(lines, tokens, heads, width).swapaxes(1, 2)


class MlxBackend(Backend):
    """A model of mlx-lm. Slots at different positions may share a launch."""

    name = "mlx"

    def __init__(self, options: LoadOptions, progress: Progress | None = None) -> None:
        """Load the model in `options.model`; `progress` is called once, at the end. Raises ModelLoadError."""
        options.refuse(
            "mlx", *_NO_CHOICE, "compile", "tensor_parallel", *COMPILATION
        )  # options that MLX lacks or decides itself
        folder = check_folder(options.model, "mlx")
        self.model_name, moved = model_name(folder), _moved(read_json(folder / "config.json"))
        try:
            self._model, config = load_model(folder, model_config=moved)
            kinds = {type(layer) for layer in make_prompt_cache(self._model)}
            if options.dtype is not None:
                self._model.set_dtype(getattr(mx, options.dtype))
            token_bytes, size = self._probe() if kinds == {KVCache} else (0, 0)
        except Exception as error:  # any type: bad files, unknown model families, weights that do not fit the config
            raise ModelLoadError(f"mlx-lm could not load {folder}: {type(error).__name__}: {error}") from error
        if not token_bytes:  # mlx-lm's own check does not suffice: a window can be trimmed only until it is full
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ModelLoadError(
                f"{self.model_name} keeps its text in mlx-lm's {names}, which cannot roll back rejected "
                "tokens: choose a model with full attention in every layer, or another engine"
            )
        self.vocabulary = read_vocabulary(folder, size)
        self.take_chat_templates(read_chat_templates(folder))
        text = config.get("text_config") or config
        most = (text.get("sliding_window") if text.get("use_sliding_window", True) else None) or 2**31
        self.context_length = options.context_length or min(text.get("max_position_embeddings") or 4096, 4096, most)
        if self.context_length > most:
            raise ModelLoadError(
                f"context {self.context_length}: mlx-lm ignores the window of {most} tokens: at most {most}", "context"
            )
        self.runs_on = f"{mx.default_device()} in {options.dtype or 'the number type of its files'}"
        self.threads = cores_to_use() if mx.default_device() == mx.cpu else 0
        self.slots = options.slots or slots_that_fit(token_bytes * self.context_length, available_bytes())
        self.kv_bytes = token_bytes * self.context_length * self.slots
        check_room(self, available_bytes())
        self.max_batch_tokens = max(options.batch_tokens, self.slots, 2)
        self._buckets = Buckets(self.slots, self.max_batch_tokens, compiled=False)
        self.max_nodes, self.takes_trees = self._buckets.most_nodes, self._takes_trees()
        self._slots = [make_prompt_cache(self._model) for _ in range(self.slots)]
        super().__init__()
        if progress is not None:
            progress(1.0)

    def close(self) -> None:
        self._model, self._slots = None, []
        mx.clear_cache()

    def _probe(self) -> tuple[int, int]:
        """Run a launch over two slots. Returns the bytes of a token in the KV cache, and how many ids have logits.

        Raises any exception for a model family that supports only one position for all slots of a pass.
        """
        slots = make_prompt_cache(self._model), make_prompt_cache(self._model)
        logits = self._model(mx.array([[0], [0]]), cache=[_BatchedCache(layers) for layers in zip(*slots, strict=True)])
        mx.eval(logits)
        token_bytes = sum(kv.nbytes // kv.shape[2] for layer in slots[0] for kv in (layer.keys, layer.values))
        return token_bytes, logits.shape[-1]

    def _takes_trees(self) -> bool:
        """Let the model's rotary embeddings take any positions. Then test whether a tree's token has the same logits
        far behind its parent as right behind it."""
        for module in self._model.modules():
            for name, part in list(module.items()):
                # A part with further parameters is something else: some families' attention takes an offset, too.
                if isinstance(part, nn.Module) and [*signature(type(part).__call__).parameters][2:] == ["offset"]:
                    module[name] = _AnyPositions(part)
        tree = Entry(0, 0, [0, *range(1, _TRIED), 1], 0, [*range(1, _TRIED), _TRIED])
        seen = Launch((1, len(tree.tokens)), [tree], [0]).seen([tree])

        def last(tokens: Sequence[int], seen: NDArray[np.bool_] | None) -> Any:
            layers = make_prompt_cache(self._model)
            cache = [_BatchedCache([layer], seen) for layer in layers]
            logits = self._model(mx.array([list(tokens)]), cache=cache)[0, -1].astype(mx.float32)
            mx.eval(logits)
            return np.asarray(logits)

        try:
            found, expected = last(tree.tokens, seen), last([0, 1], None)
        except Exception:  # any type: a family that uses positions in a way of its own
            return False
        return bool(np.abs(found - expected).max() <= _APART * np.abs(expected).max())

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        parts: list[list[Logits]] = [[] for _ in batch]
        try:
            for launch in self._buckets.launches(batch):
                for owner, logits in zip(launch.owners, self._launch(launch), strict=True):
                    parts[owner].append(np.asarray(logits))
        except Exception as error:  # any type
            raise EngineFailure(f"MLX failed in a forward pass: {type(error).__name__}: {error}") from error
        return [np.concatenate(each) for each in parts]

    def _launch(self, launch: Launch) -> list[Any]:
        """Run a launch. Returns, for each piece, float32 logits (tokens, vocabulary) of the tokens that want logits."""
        (_, width), pieces = launch.shape, launch.pieces
        slots = [self._trim(piece.slot, piece.start) for piece in pieces]
        cache, seen = slots[0], launch.seen(pieces)
        if len(slots) > 1 or seen is not None:
            cache = [_BatchedCache(layers, seen) for layers in zip(*slots, strict=True)]
        tokens = mx.array([[*piece.tokens, *[0] * (width - len(piece.tokens))] for piece in pieces])
        first = min(pieces[0].logits_from, width - 1) if width > NARROW else 0
        if first:  # most of a prompt: its logits are not wanted and, not being evaluated, never computed
            self._model(tokens[:, :first], cache=cache)
        logits = self._model(tokens[:, first:], cache=cache)
        wanted = [each[launch.returned(piece)].astype(mx.float32) for each, piece in zip(logits, pieces, strict=True)]
        mx.eval(wanted, [(layer.keys, layer.values) for slot in slots for layer in slot])
        for piece in pieces:
            self._trim(piece.slot, piece.start + len(piece.tokens))  # drop the padding
        if first:
            mx.clear_cache()  # MLX keeps the memory of a prompt's pass otherwise; the next passes need little
        return wanted

    def _trim(self, slot: int, length: int) -> Any:
        """Cut the cache of `slot` to its first `length` tokens. Returns it: mlx-lm's cache of each layer."""
        for layer in self._slots[slot]:
            layer.trim(layer.offset - length)
        return self._slots[slot]

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        first = entry.start + entry.trunk
        places, targets = mx.array([entry.start + at for at in path]), slice(first, first + len(path))
        layers = self._trim(entry.slot, first + len(path))
        try:
            for layer in layers if path else ():
                layer.keys[..., targets, :] = layer.keys[..., places, :]
                layer.values[..., targets, :] = layer.values[..., places, :]
            mx.eval([(layer.keys, layer.values) for layer in layers])
        except Exception as error:  # any type
            raise EngineFailure(f"MLX failed to move tokens: {type(error).__name__}: {error}") from error

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._slots[destination] = copy.deepcopy(self._slots[source])  # MLX copies the memory on the next write only
        self._trim(destination, length)

    def _release(self, slot: int) -> None:
        self._slots[slot] = make_prompt_cache(self._model)


def _moved(config: dict[str, Any]) -> dict[str, Any]:
    """The entries of transformers 5's `rope_parameters`, by their former names.

    Most of mlx-lm's model families read them there, and would otherwise silently use defaults.
    """
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        rope = {**rope, "rope_scaling": {"type": rope["rope_type"], **rope}}
    inner = config.get("text_config") or {}
    text = {"text_config": {**inner, **_moved(inner)}} if inner else {}
    return {**{key: value for key, value in rope.items() if config.get(key) is None}, **text}


def room(options: LoadOptions) -> FreeMemory:
    """The memory for a model: the machine's memory."""
    widths = {None: None, "float32": 4.0}
    return FreeMemory(available_bytes(), widths.get(options.dtype, 2.0))


load = MlxBackend
