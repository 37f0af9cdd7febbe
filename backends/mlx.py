"""The mlx engine: models of mlx-lm, on Apple silicon and, with MLX's build for CPUs, on Linux.

Each slot has a cache of mlx-lm, which a rollback trims at its end. MLX is lazy: it computes a result only when it is
evaluated, and only on the thread that created it. So every call here evaluates all its results before it returns.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.utils import load_model

from backends.buckets import NARROW, Buckets, Launch
from backends.hugging_face.folder import check_folder, model_name
from backends.hugging_face.vocabulary import read_vocabulary
from backends.machine import available_bytes, check_room, cores_to_use, slots_that_fit
from specpair.engines.backend import Backend, Entry, Logits, Progress
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.files.folder import read_chat_templates, read_json
from specpair.engines.load_options import COMPILATION, LoadOptions
from specpair.engines.room import Room

_NO_CHOICE: Final = ("gpu_layers", "threads", "kv_type", "mmap", "flash_attention", "deterministic", "device")


class _BatchedCache:
    """One layer's cache of several slots, each at a position of its own, in the form that a model expects in a pass."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self._layers, self._longest = layers, max(layer.offset for layer in layers)
        self.offset = mx.array([layer.offset for layer in layers])

    def make_mask(self, count: int, **_: Any) -> Any:
        """Boolean (slots, 1, count, positions): the positions each new token attends to, by causal attention.

        Models with sliding windows are never loaded.
        """
        return mx.arange(self._longest + count) <= (self.offset[:, None] + mx.arange(count))[:, None, :, None]

    def update_and_fetch(self, keys: Any, values: Any) -> list[Any]:
        """Append each slot's new keys and values. Returns all, padded to the longest slot's: the mask hides padding."""
        self.offset, longest = self.offset + keys.shape[2], self._longest + keys.shape[2]
        held = [layer.update_and_fetch(keys[at, None], values[at, None]) for at, layer in enumerate(self._layers)]
        ends = [[(0, 0), (0, 0), (0, longest - layer.offset), (0, 0)] for layer in self._layers]
        return [mx.concatenate(list(map(mx.pad, slots, ends))) for slots in zip(*held, strict=True)]


class MlxBackend(Backend):
    """A model of mlx-lm. Slots may share a launch although each is at a position of its own."""

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
        cache = slots[0] if len(slots) == 1 else [_BatchedCache(layers) for layers in zip(*slots, strict=True)]
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

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._slots[destination] = copy.deepcopy(self._slots[source])  # MLX copies the memory on the next write only
        self._trim(destination, length)

    def _release(self, slot: int) -> None:
        self._slots[slot] = make_prompt_cache(self._model)


def _moved(config: dict[str, Any]) -> dict[str, Any]:
    """The entries that transformers 5 moved into `rope_parameters`, for the places where it had them before.

    Most of mlx-lm's model families read them there, and would otherwise silently use defaults.
    """
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        rope = {**rope, "rope_scaling": {"type": rope["rope_type"], **rope}}
    inner = config.get("text_config") or {}
    text = {"text_config": {**inner, **_moved(inner)}} if inner else {}
    return {**{key: value for key, value in rope.items() if config.get(key) is None}, **text}


def room(options: LoadOptions) -> Room:
    """What there is for a model: MLX puts it into the machine's memory."""
    widths = {None: None, "float32": 4.0}
    return Room(available_bytes(), widths.get(options.dtype, 2.0))


load = MlxBackend
