"""The shipped pair: its metadata, its tokenizer, and its logits in llama.cpp against the reference."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import quants
from numpy.typing import NDArray

from models import DEFAULT_DRAFT, DEFAULT_HEAD, DEFAULT_TARGET, DEFAULT_TWIN
from models.gguf_file import Gguf, read_gguf

PAIR = (DEFAULT_TARGET, DEFAULT_DRAFT, DEFAULT_TWIN)
TEXT = '''import os
import sys


def read_lines(path, encoding="utf-8"):
    """Return the lines of the file."""
    with open(path, encoding=encoding) as file:
        return [line.rstrip() for line in file]


class Reader:
    def __init__(self, path):
        self.path = path

    def __repr__(self):
        return "<%s %r>" % (self.__class__.__name__, self.path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(os.path.basename(name), len(read_lines(name)))
'''
TOKEN_IDS = json.loads(Path(__file__).with_name("token_ids.json").read_text(encoding="utf-8"))
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "embed_tokens",
    "output_norm": "norm",
}


def weights_of(model: Gguf) -> dict[str, NDArray[np.float32]]:
    """The weights as floats, under the names and in the row order of Hugging Face."""
    weights = {}
    for tensor in model.tensors:
        values = np.asarray(quants.dequantize(tensor.data, tensor.kind), dtype=np.float32)
        *layer, part, _ = tensor.name.split(".")
        if part in ("attn_q", "attn_k"):
            values = values.reshape(-1, 32, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)
        prefix = f"model.layers.{layer[1]}." if layer else "model."
        weights[f"{prefix}{NAMES[part]}.weight"] = values
    return weights


def config_of(model: Gguf) -> dict[str, Any]:
    """The config for the reference, from the file's metadata."""
    return {
        "num_attention_heads": model.get("attention.head_count"),
        "num_key_value_heads": model.get("attention.head_count_kv"),
        "head_dim": model.get("attention.key_length"),
        "num_hidden_layers": model.layers,
        "rms_norm_eps": model.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": model.get("rope.freq_base"),
    }


def test_files_are_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in (*PAIR, DEFAULT_HEAD)) < 16_000_000


def test_all_three_share_one_vocabulary() -> None:
    target, *others = ({k: f.value for k, f in read_gguf(path).fields.items() if "tokenizer." in k} for path in PAIR)
    assert len(target["tokenizer.ggml.tokens"]) == 4096
    assert target["tokenizer.ggml.pre"] == "llama-bpe"
    assert (target["tokenizer.ggml.bos_token_id"], target["tokenizer.ggml.eos_token_id"]) == (0, 1)
    assert target["tokenizer.ggml.add_bos_token"] is True
    assert all(other == target for other in others)


def test_text_is_encoded_as_in_training_and_decoded(engine: Any) -> None:
    model = engine(DEFAULT_DRAFT)
    for case in TOKEN_IDS:
        assert model.encode(case["text"]) == case["ids"], repr(case["text"])
        assert model.decode(case["ids"]).decode() == case["text"]
    assert model.encode("x", special=True) == [0, *model.encode("x")]


@pytest.mark.parametrize("path", PAIR, ids=["target", "draft", "twin"])
def test_llama_cpp_equals_the_reference(engine: Any, reference: Any, path: Path) -> None:
    file, model = read_gguf(path), engine(path)
    ids = model.encode(TEXT, special=True)
    expected = reference(config_of(file), weights_of(file), ids)
    difference = model.logits(ids) - expected
    # What is left is llama.cpp's rounding of activations to eight bits.
    assert np.sqrt(np.mean(difference**2)) / expected.std() < 0.03


def test_twin_is_nearer_to_the_target_than_the_draft(engine: Any) -> None:
    ids = engine(DEFAULT_TARGET).encode(TEXT, special=True)
    target, draft, twin = (engine(path).logits(ids).argmax(axis=-1) for path in PAIR)
    assert float(np.mean(twin == target)) > 0.85
    assert float(np.mean(draft == target)) > 0.35
