"""Reads safetensors files, the head alone or the weights, and lists the shapes of a Llama. Needs NumPy only.

The format: https://huggingface.co/docs/safetensors.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import BadHead, ExportError

_MOST = 100 << 20  # bytes of the longest head, as the format limits it
_DTYPES: Final = {"F16": "<f2", "F32": "<f4", "BF16": "<u2"}  # of weights that are read


class StoredTensor(NamedTuple):
    """A tensor in a file. `kind`: as the file names it, such as BF16. `begin`: the byte of the file. `size`: bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    begin: int
    size: int

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


def read_tensor_list(read: Callable[[int, int], bytes], name: str) -> list[StoredTensor]:
    """The tensors that the head of a file lists. `read`: takes an offset and a count, returns bytes. Raises BadHead."""
    begin = read(0, 8)
    length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else 0
    if not 0 < length <= _MOST:
        raise BadHead(f"{name} is no file of safetensors that can be read: its head would have {length} bytes")
    try:
        listed = json.loads(read(8, length))
        listed.pop("__metadata__", None)
        found = []
        for each, at in listed.items():
            first, end = at["data_offsets"]
            found.append(StoredTensor(each, at["dtype"], tuple(at["shape"]), 8 + length + first, end - first))
            math.prod(found[-1].shape)
        return found
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BadHead(f"{name} is no file of safetensors that can be read: {error!r}") from None


def tensors_in(path: Path) -> list[StoredTensor]:
    """The tensors of a file on this machine. Raises BadHead, and OSError."""
    with path.open("rb") as file:

        def read(begin: int, count: int) -> bytes:
            file.seek(begin)
            return file.read(count)

        return read_tensor_list(read, str(path))


def read_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read every tensor of the file as float32, by name.

    Raises ExportError if the file is missing, damaged, or holds other types than F16, BF16 and F32.
    """
    try:
        listed, mapped = tensors_in(path), np.memmap(path, mode="r")
        return {tensor.name: _decode(mapped, tensor, path) for tensor in listed}
    except FileNotFoundError:
        raise ExportError(f"{path} does not exist: expected the weights there in safetensors format") from None
    except (ValueError, TypeError, OSError, BadHead) as error:
        raise ExportError(f"{path} is not a readable safetensors file ({error}): fetch or write it again") from error


def llama_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of a Llama, (outputs, inputs) of matrices, by its name. `config`: its config.json."""
    hidden, ffn, heads = (config[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads"))
    queries, keys = heads * head_dim(config), (config.get("num_key_value_heads") or heads) * head_dim(config)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    embeddings = config["vocab_size"], hidden
    shapes = {"model.embed_tokens.weight": embeddings, "model.norm.weight": (hidden,)}
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{part}.weight": shape for part, shape in layer.items()}
    return shapes if config.get("tie_word_embeddings") else {**shapes, "lm_head.weight": embeddings}


def head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _decode(mapped: NDArray[np.uint8], tensor: StoredTensor, path: Path) -> NDArray[np.float32]:
    if tensor.kind not in _DTYPES:
        raise ExportError(f"{path} holds weights of type {tensor.kind}: only F16, BF16 and F32 can be converted")
    if tensor.begin + tensor.size > len(mapped):
        raise ValueError("it ends before its data does")
    data = mapped[tensor.begin : tensor.begin + tensor.size]
    raw: NDArray[Any] = data.view(_DTYPES[tensor.kind]).reshape(tensor.shape)
    if tensor.kind == "BF16":  # NumPy has no such type: it is the upper half of a float32
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)
