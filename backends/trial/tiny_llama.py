"""A tiny Llama of random weights in Hugging Face layout, its GGUF file, and its logits by NumPy, without any model
library."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.safetensors_file import llama_shapes
from models.training.corpus import SPLIT_PATTERN
from specpair.engines.model_files import BYTE_LEVEL

Floats = NDArray[np.float32]


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


def write_tiny_gguf(model: TinyModel, path: Path, chat_templates: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write the model in the folder to `path` in float32, for llama.cpp, with chat templates by name. Needs `gguf`."""
    from models.gguf_file import field_of, write_gguf  # here: other engines do without
    from models.huggingface import read_huggingface

    found = read_huggingface(model.folder, name=path.stem)
    key = "tokenizer.chat_template"
    named = {key if name == "default" else f"{key}.{name}": field_of(text) for name, text in chat_templates.items()}
    write_gguf(replace(found, fields={**found.fields, **named}), path)


def tiny_weights(config: Mapping[str, Any]) -> dict[str, Floats]:
    """Random weights for a config, rounded to float16, so that the file holds exactly these."""
    generator = np.random.default_rng(7)
    weights = {}
    for name, shape in llama_shapes(config).items():
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


def reference_logits(config: Mapping[str, Any], weights: Mapping[str, Floats], ids: Sequence[int]) -> Floats:
    """A Llama forward pass in float64, from the papers: weights by Hugging Face names, one row of logits per id."""
    heads, groups = config["num_attention_heads"], config["num_attention_heads"] // config["num_key_value_heads"]
    dim, length = config["head_dim"], len(ids)
    half = dim // 2
    angles = np.outer(np.arange(length), rotary_speeds(config))
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    future = np.triu(np.full((length, length), -np.inf), 1)

    def norm(x: NDArray[Any], name: str) -> NDArray[Any]:
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + config["rms_norm_eps"])
        return np.asarray(x / scale * weights[name])

    def rotate(x: NDArray[Any]) -> NDArray[Any]:
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    x = weights["model.embed_tokens.weight"].astype(np.float64)[list(ids)]
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        y = norm(x, f"{layer}.input_layernorm.weight")
        query, key, value = (
            (y @ weights[f"{layer}.self_attn.{part}_proj.weight"].T).reshape(length, -1, dim) for part in "qkv"
        )
        key, value = np.repeat(rotate(key), groups, axis=1), np.repeat(value, groups, axis=1)
        scores = np.einsum("qhd,khd->hqk", rotate(query), key) / np.sqrt(dim) + future
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        y = np.einsum("hqk,khd->qhd", scores, value).reshape(length, heads * dim)
        x = x + y @ weights[f"{layer}.self_attn.o_proj.weight"].T
        y = norm(x, f"{layer}.post_attention_layernorm.weight")
        gate = y @ weights[f"{layer}.mlp.gate_proj.weight"].T
        up = y @ weights[f"{layer}.mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{layer}.mlp.down_proj.weight"].T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return np.asarray(norm(x, "model.norm.weight") @ head.T, dtype=np.float32)


def rotary_speeds(config: Mapping[str, Any]) -> NDArray[np.float64]:
    """The angle per position of each pair of dimensions, with the scaling of Llama 3 where the config asks for it."""
    half = config["head_dim"] // 2
    speeds = np.asarray(config["rope_theta"] ** (-np.arange(half) / half))
    scaling = config.get("rope_scaling")
    if not scaling:
        return speeds
    assert scaling["rope_type"] == "llama3"
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * speeds / (2 * np.pi)  # within the context trained first
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(speeds * (kept + (1 - kept) / scaling["factor"]))
