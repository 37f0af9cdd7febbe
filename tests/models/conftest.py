"""Fixtures for tests of model files: llama.cpp, a reference Llama in NumPy, and a tiny model folder."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from backends.trial.tiny_llama import Floats as Floats
from backends.trial.tiny_llama import TinyModel as TinyModel
from backends.trial.tiny_llama import reference_logits as reference_logits
from backends.trial.tiny_llama import tiny_tokenizer as tiny_tokenizer


class Engine:
    """A model file loaded by llama.cpp, with one context."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        import llama_cpp

        self._api = api = llama_cpp
        self._model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
        assert self._model, f"llama.cpp does not load {path}"
        parameters = api.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = api.llama_init_from_model(self._model, parameters)
        self._vocabulary = api.llama_model_get_vocab(self._model)
        self.size: int = api.llama_vocab_n_tokens(self._vocabulary)

    def logits(self, ids: Sequence[int], start: int = 0) -> Floats:
        """Feed the ids from position `start` on. Returns a row of logits for each."""
        batch = self._api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index], batch.pos[index], batch.logits[index] = token, start + index, 1
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        self._api.llama_memory_seq_rm(self._api.llama_get_memory(self._context), 0, start, -1)
        assert self._api.llama_decode(self._context, batch) == 0
        view = np.ctypeslib.as_array(self._api.llama_get_logits(self._context), shape=(len(ids), self.size))
        result = np.array(view, dtype=np.float32)
        self._api.llama_batch_free(batch)
        return result

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of the text; with ``special``, the begin token is added if the file says so."""
        raw = text.encode()
        buffer = (self._api.llama_token * (len(raw) + 2))()
        count = self._api.llama_tokenize(self._vocabulary, raw, len(raw), buffer, len(buffer), special, False)
        return list(buffer[:count])

    def decode(self, ids: Sequence[int]) -> bytes:
        """The concatenated bytes of the ids."""
        buffer = ctypes.create_string_buffer(512)
        text = b""
        for token in ids:
            count = self._api.llama_token_to_piece(self._vocabulary, token, buffer, 512, 0, True)
            text += buffer.raw[:count]
        return text

    def close(self) -> None:
        """Free the context, then the model."""
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    """Opens model files with llama.cpp; they are closed when the test ends."""
    pytest.importorskip("backends.llama_cpp.library", reason="needs llama-cpp-python")  # also silences its log
    opened: list[Engine] = []

    def open_model(path: Path, threads: int = 1) -> Engine:
        opened.append(Engine(path, threads))
        return opened[-1]

    yield open_model
    for each in opened:
        each.close()


@pytest.fixture
def reference() -> Callable[..., Floats]:
    """The NumPy forward pass: ``reference(config, weights, ids)``."""
    return reference_logits


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., TinyModel]:
    """Makes a tiny model folder: ``tiny(**changes_of_its_config)``."""
    return lambda **changes: TinyModel(tmp_path / "tiny", **changes)
