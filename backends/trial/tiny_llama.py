"""Writes a tiny Llama of random weights, in Hugging Face layout or as a GGUF file, without any model library."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from backends.trial.reference import Floats
from models.training.corpus import SPLIT_PATTERN
from specpair.engines.model_files import BYTE_LEVEL


class TinyModel:
    """A tiny model folder, with its config and weights."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.config: dict[str, Any] = {
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "vocab_size": 264,  # three more than the tokenizer names
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "tie_word_embeddings": True,
            **changes,
        }
        self.weights = tiny_weights(self.config)
        folder.mkdir(exist_ok=True)
        self.write_config()
        (folder / "tokenizer.json").write_text(json.dumps(tiny_tokenizer()), encoding="utf-8")
        self.write_weights()

    def write_config(self, **changes: Any) -> None:
        """Write ``config.json`` with these entries changed."""
        (self.folder / "config.json").write_text(json.dumps({**self.config, **changes}), encoding="utf-8")

    def write_weights(self) -> None:
        """Write ``model.safetensors``: the length of a header in JSON, the header, and the weights in float16."""
        header: dict[str, Any] = {}
        content = b""
        for name, data in self.weights.items():
            start, content = len(content), content + data.astype("<f2").tobytes()
            header[name] = {"dtype": "F16", "shape": list(data.shape), "data_offsets": [start, len(content)]}
        encoded = json.dumps(header).encode()
        path = self.folder / "model.safetensors"
        path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + content)


def tiny_weights(config: Mapping[str, Any]) -> dict[str, Floats]:
    """Random weights for a config, rounded to float16, so that the file holds exactly these."""
    generator = np.random.default_rng(7)
    hidden, ffn, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.self_attn.q_proj.weight": (queries, hidden),
            f"{layer}.self_attn.k_proj.weight": (keys, hidden),
            f"{layer}.self_attn.v_proj.weight": (keys, hidden),
            f"{layer}.self_attn.o_proj.weight": (hidden, queries),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
            f"{layer}.mlp.gate_proj.weight": (ffn, hidden),
            f"{layer}.mlp.up_proj.weight": (ffn, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, ffn),
        }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    weights = {}
    for name, shape in shapes.items():
        values = (
            generator.normal(size=shape) * shape[-1] ** -0.5 if len(shape) == 2 else generator.uniform(0.5, 2, shape)
        )
        weights[name] = values.astype(np.float16).astype(np.float32)
    return weights


def tiny_tokenizer() -> dict[str, Any]:
    """A byte-level BPE in the layout of ``tokenizer.json``: two control ids, the 256 bytes and three merges."""
    merges = [["\u0120", "\u0120"], ["i", "f"], ["\u0120", "if"]]
    tokens = ["<|begin|>", "<|end|>", *sorted(BYTE_LEVEL), *("".join(merge) for merge in merges)]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "added_tokens": [{"id": index, "content": tokens[index], "special": True, **plain} for index in (0, 1)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": merges,
        },
    }
