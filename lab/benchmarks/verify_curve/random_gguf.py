"""Llamas of known shapes with random weights in blocks of 8 bits (Q8_0), as GGUF files for llama.cpp.

A pass costs what that of a real model of this shape does. Needs gguf.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from numpy.typing import NDArray

from backends.trial.tiny_gguf import add_llama, finish

# What no shape says, and no pass costs more for.
_CONFIG = {
    **{"max_position_embeddings": 8192, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5},
    **{"bos_token_id": 0, "eos_token_id": 1},
}
_DRAWN = 64  # rows of each matrix; the others repeat them, which no product of matrices notices


@contextmanager
def model_file(name: str, shape: dict[str, Any]) -> Iterator[Path]:
    """A file of a Llama of this shape, which is as large as the model and goes when the block ends.

    An engine that has mapped it goes on to read it.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}-q8_0.gguf"
        _write(path, shape)
        yield path


def _write(path: Path, shape: dict[str, Any]) -> None:
    hidden, inner, vocabulary = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    queries, keys = (shape["head_dim"] * shape[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    add_llama(writer, shape | _CONFIG)
    generator = np.random.default_rng(7)

    def add(tensor: str, *sizes: int) -> None:
        if len(sizes) == 1:
            writer.add_tensor(f"{tensor}.weight", np.ones(sizes, np.float32))
        else:
            writer.add_tensor(f"{tensor}.weight", _matrix(generator, *sizes), raw_dtype=GGMLQuantizationType.Q8_0)

    add("token_embd", vocabulary, hidden)
    add("output_norm", hidden)
    if not shape["tie_word_embeddings"]:
        add("output", vocabulary, hidden)
    for layer in range(shape["num_hidden_layers"]):
        add(f"blk.{layer}.attn_norm", hidden)
        add(f"blk.{layer}.attn_q", queries, hidden)
        add(f"blk.{layer}.attn_k", keys, hidden)
        add(f"blk.{layer}.attn_v", keys, hidden)
        add(f"blk.{layer}.attn_output", hidden, queries)
        add(f"blk.{layer}.ffn_norm", hidden)
        add(f"blk.{layer}.ffn_gate", inner, hidden)
        add(f"blk.{layer}.ffn_up", inner, hidden)
        add(f"blk.{layer}.ffn_down", hidden, inner)
    finish(writer)


def _matrix(generator: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """A matrix (rows, columns) as uint8 (rows, bytes of a row), of weights with a deviation of `columns` ** -0.5."""
    values = generator.normal(size=(min(rows, _DRAWN), columns)) * columns**-0.5
    blocks = quants.quantize(values.astype(np.float32), GGMLQuantizationType.Q8_0)
    return np.tile(blocks, (-(-rows // len(blocks)), 1))[:rows]
