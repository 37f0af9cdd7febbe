"""Loads what drafts for a target beside it: layers of its own file, or a file with a head."""

from pathlib import Path
from typing import Any

from backends.llama_cpp.dflash_head import DflashHead
from backends.llama_cpp.eagle_head import EagleHead
from backends.llama_cpp.head_files import DFLASH, EAGLE3, MTP, head_of
from backends.llama_cpp.head_slots import LlamaHead
from backends.llama_cpp.library import lib
from backends.llama_cpp.model import kv_bytes_per_token, load_model
from backends.llama_cpp.mtp_head import MtpHead
from specpair.engines.load_options import LoadOptions


class TargetHead:
    """The head of a target, or none. `in_target`: whether it is in the target's own file."""

    def __init__(self, path: Path, options: LoadOptions) -> None:
        """`path`: of the target, a checked GGUF file. Raises ModelLoadError, as `head_of`."""
        self._options, self._found = options, head_of(path, options)
        self._model: Any = None
        self._owned: Any = None
        self.in_target = self._found is not None and self._found.path is None

    def load(self, target: Any, *, extra_buffers: bool) -> None:
        """Load the file of its own, if it has one. `target`: the target's model. Raises ModelLoadError."""
        self._model = target
        if self._found is not None and self._found.path is not None:
            mtp = self._found.kind == MTP
            self._owned = self._model = load_model(self._found.path, self._options, None, extra_buffers, with_heads=mtp)

    def kv_bytes_per_token(self) -> int:
        """Bytes of its KV cache for a token of a slot. Each MTP head has a context with the cache of all heads."""
        if self._found is None:
            return 0
        count, layers = (self._found.heads**2, 1) if self._found.kind == MTP else (1, None)
        return count * kv_bytes_per_token(self._model, self._options.kv_type, layers=layers)

    def open(self, target: Any, params: Any, slots: int) -> LlamaHead | None:
        """Make its contexts; None if there is no head. Raises NoRoom, and ModelLoadError where functions are missing.

        `target`: the context of the target. `params`: of that context. They are changed.
        """
        found = self._found
        if found is None:
            return None
        if found.kind == EAGLE3:
            return EagleHead(self._model, target, params, slots, found.layers)
        if found.kind == DFLASH:
            return DflashHead(self._model, target, params, slots, found.layers, found.block, causal=found.causal)
        return MtpHead(self._model, target, params, slots, found.heads)

    def close(self) -> None:
        """Free the model of its own file."""
        if self._owned is not None:
            lib.llama_model_free(self._owned)
            self._owned = None
