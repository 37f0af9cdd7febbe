"""Writes tiny GGUF files with a head that drafts, in the target's file or in one of its own. No weight is trained."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from models.gguf_file import Gguf, Tensor, field_of, read_gguf, write_gguf
from tests.stand_ins.tiny_architectures import Sizes, write_tiny_architecture

SIZES = Sizes()
KV_OF_LAYER = 2 * SIZES.width  # numbers that a layer caches for one token: one group of keys and one of values
_SHARED = ("token_embd.weight", "output_norm.weight")  # tensors that a head of its own has, too


def write_target_with_mtp(path: Path, layers: int = 1, *, stated: int | None = None) -> int:
    """Write a model of the architecture qwen35 with so many MTP layers. Returns the bytes of their tensors.

    `stated`: how many the file says that it has; None: as many as there are.
    """
    model, of_head = _with_mtp(path, layers)
    count = SIZES.layers + (layers if stated is None else stated)
    fields = {"qwen35.block_count": count, "qwen35.nextn_predict_layers": count - SIZES.layers}
    stating = {**model.fields, **{key: field_of(value) for key, value in fields.items()}}
    write_gguf(replace(model, fields=stating, tensors=[*model.tensors, *of_head]), path)
    return sum(tensor.data.nbytes for tensor in of_head)


def write_lone_mtp(path: Path, layers: int = 1) -> None:
    """Write the MTP layers of that model to a file of their own."""
    model, of_head = _with_mtp(path, layers)
    fields = {"qwen35.block_count": SIZES.layers + layers, "qwen35.nextn_predict_layers": layers}
    stating = {**model.fields, **{key: field_of(value) for key, value in fields.items()}}
    shared = [tensor for tensor in model.tensors if tensor.name in _SHARED]
    write_gguf(replace(model, fields=stating, tensors=[*shared, *of_head]), path)


def write_lone_head(architecture: str, path: Path, layers: int = 1, *further: str) -> None:
    """Write a head of the architecture eagle3, dflash or gemma4-assistant, with tensors of these further names."""
    fields = {
        "block_count": layers,
        "embedding_length": SIZES.hidden,
        "context_length": SIZES.context,
        "attention.head_count": SIZES.heads,
        "attention.head_count_kv": 1,
        **({"nextn_predict_layers": layers} if architecture == "gemma4-assistant" else {}),
    }
    names = ["fc.weight", *(f"blk.{layer}.attn_output.weight" for layer in range(layers)), *further]
    tensors = [_tensor(name, (SIZES.hidden, SIZES.hidden)) for name in names]
    stated = {f"{architecture}.{key}": field_of(value) for key, value in fields.items()}
    write_gguf(Gguf(architecture, stated, tensors), path)


def _with_mtp(path: Path, layers: int) -> tuple[Gguf, list[Tensor]]:
    """A model without a head, and the tensors of its MTP layers: of its last layer, which attends, and of the head."""
    write_tiny_architecture("qwen35", path, SIZES)
    model, hidden = read_gguf(path), SIZES.hidden
    last = f"blk.{SIZES.layers - 1}."
    block = {each.name.removeprefix(last): each for each in model.tensors if each.name.startswith(last)}
    norms = [_tensor(f"nextn.{name}.weight", (hidden,)) for name in ("enorm", "hnorm", "shared_head_norm")]
    block |= {each.name: each for each in (*norms, _tensor("nextn.eh_proj.weight", (hidden, 2 * hidden)))}
    numbers = range(SIZES.layers, SIZES.layers + layers)
    return model, [replace(each, name=f"blk.{number}.{name}") for number in numbers for name, each in block.items()]


def _tensor(name: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, np.ones(shape, dtype=np.float32), GGMLQuantizationType.F32)
