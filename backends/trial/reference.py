"""The logits of a Llama by NumPy, without a cache: what engines are compared with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


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
