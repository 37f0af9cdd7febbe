"""Llamas of known shapes with random weights in blocks of 8 bits (Q8_0), as GGUF files for llama.cpp.

A pass costs what that of a real model of this shape does. Needs gguf.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from backends.trial.tiny_gguf import add_vocabulary

_BLOCK = 32  # weights, which share a scale of 2 bytes
_DRAWN = 64  # rows of each matrix; the others repeat them, which no product of matrices notices


@contextmanager
def model_file(name: str, shape: dict[str, Any]) -> Iterator[Path]:
    """A file of a Llama of this shape, which is as large as the model and goes when the block ends."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}-q8_0.gguf"
        _write(path, shape)
        yield path


def _write(path: Path, shape: dict[str, Any]) -> None:
    hidden, inner, vocabulary = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    queries, keys = (shape["head_dim"] * shape[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_context_length(8192)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(shape["num_attention_heads"])
    writer.add_head_count_kv(shape["num_key_value_heads"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_rope_freq_base(500_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    add_vocabulary(writer, vocabulary)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)

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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _matrix(generator: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """A matrix (rows, columns) as uint8 (rows, bytes of a row), of weights with a deviation of `columns` ** -0.5."""
    drawn = min(rows, _DRAWN)
    numbers = generator.integers(-127, 128, (drawn, columns // _BLOCK, _BLOCK), dtype=np.int8)
    scale = np.float16((3 / columns) ** 0.5 / 127)
    scales = np.full((drawn, columns // _BLOCK, 1), scale).view(np.uint8)
    blocks = np.concatenate([scales, numbers.view(np.uint8)], axis=2).reshape(drawn, -1)
    return np.tile(blocks, (-(-rows // drawn), 1))[:rows]
