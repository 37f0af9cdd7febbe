"""A GGUF file of a model that does not generate text is refused when it is loaded, with the reason."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType, GGUFWriter

from backends import registry
from backends.llama_cpp.model import read_gguf_vocabulary
from models import DEFAULT_TARGET
from models.gguf_file import Field, read_gguf, write_gguf
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions

WIDTH, INNER, WORDS = 32, 64, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
LINEAR = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH)}
FORWARD = {"ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}


def _bert() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of an encoder of one layer, as BERT has them."""
    yield from {"token_embd": (len(WORDS), WIDTH), "token_types": (2, WIDTH), "position_embd": (64, WIDTH)}.items()
    yield "token_embd_norm", (WIDTH,)
    for name, shape in (LINEAR | FORWARD | {"attn_output": (WIDTH, WIDTH)}).items():
        yield f"blk.0.{name}", shape
    yield from (("blk.0.attn_output_norm", (WIDTH,)), ("blk.0.layer_output_norm", (WIDTH,)))


def _t5() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of an encoder and a decoder of one layer each, as T5 has them."""
    yield "token_embd", (len(WORDS), WIDTH)
    for side in ("enc", "dec"):
        yield f"{side}.output_norm", (WIDTH,)
        for name in ("attn_norm", "ffn_norm", *(["cross_attn_norm"] if side == "dec" else [])):
            yield f"{side}.blk.0.{name}", (WIDTH,)
        for name, shape in (LINEAR | FORWARD | {"attn_o": (WIDTH, WIDTH), "attn_rel_b": (32, 2)}).items():
            yield f"{side}.blk.0.{name}", shape
    for name in "qkvo":
        yield f"dec.blk.0.cross_attn_{name}", (WIDTH, WIDTH)


def _written(path: Path, architecture: str, weights: Iterator[tuple[str, tuple[int, ...]]]) -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_relative_attn_buckets_count(32)
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(WORDS)
    for name, shape in weights:
        writer.add_tensor(f"{name}.weight", np.full(shape, 0.01, dtype=np.float32))
        if architecture == "bert" and name not in ("token_embd", "token_types", "position_embd"):
            writer.add_tensor(f"{name}.bias", np.zeros(shape[:1], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as refused:
        registry.load("llama_cpp", LoadOptions(path, context_length=64, slots=1, threads=1))
    return str(refused.value)


def _variant(path: Path, key: str, value: Any, kind: GGUFValueType) -> Path:
    """The target that ships, with one statement more."""
    model = read_gguf(DEFAULT_TARGET)
    write_gguf(replace(model, fields={**model.fields, f"{model.architecture}.{key}": Field(value, kind)}), path)
    return path


@pytest.mark.parametrize("architecture", ["bert", "t5"])
def test_encoders_are_refused(tmp_path: Path, architecture: str) -> None:
    path = _written(tmp_path / "other.gguf", architecture, _bert() if architecture == "bert" else _t5())
    why = {"bert": "its tokens attend to later ones", "t5": "it has an encoder"}[architecture]
    assert _refusal(path) == (
        f"other does not generate text token by token ({why}): it is a model for embeddings, ranking or "
        "translation. Choose a causal language model"
    )


@pytest.mark.parametrize("pooling", [1, 2, 3, 4])
def test_a_model_that_pools_is_refused(tmp_path: Path, pooling: int) -> None:
    path = _variant(tmp_path / "pooled.gguf", "pooling_type", pooling, GGUFValueType.UINT32)
    assert "its file states a pooling of all positions" in _refusal(path)
    with pytest.raises(ModelLoadError, match="pooled does not generate text"):
        read_gguf_vocabulary(path)  # as the torch engine reads a GGUF file
