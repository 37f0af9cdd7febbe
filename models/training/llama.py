"""The Llama architecture in plain PyTorch, as a function of named weights.

Pre-norm decoder with RMSNorm (Zhang and Sennrich, 2019), rotary positions (Su et al., 2021), grouped-query attention
(Ainslie et al., 2023), SwiGLU (Shazeer, 2020), no biases, and the embeddings as LM head. The weights are a dictionary
under their Hugging Face names, which is saved as it is; there are no modules.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

EMBEDDINGS: Final = "model.embed_tokens.weight"


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. ``context``: positions that its file declares; training can use shorter windows."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    head_dim: int = 64  # llama.cpp's CPU flash attention is slow with 32
    vocabulary: int = 4096
    context: int = 2048
    rope_base: float = 10_000.0
    epsilon: float = 1e-5

    def config(self, begin: int, end: int) -> dict[str, Any]:
        """The contents of a Hugging Face ``config.json``."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_act": "silu",
            "bos_token_id": begin,
            "eos_token_id": end,
            "dtype": "float16",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rms_norm_eps": self.epsilon,
            "rope_theta": self.rope_base,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_base},
            "tie_word_embeddings": True,
        }


def matrix_shapes(shape: Shape) -> Iterator[tuple[str, tuple[int, int]]]:
    """The name and the shape (outputs, inputs) of every matrix but the embeddings."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for index in range(shape.layers):
        layer = f"model.layers.{index}"
        yield f"{layer}.self_attn.q_proj.weight", (queries, shape.hidden)
        yield f"{layer}.self_attn.k_proj.weight", (keys, shape.hidden)
        yield f"{layer}.self_attn.v_proj.weight", (keys, shape.hidden)
        yield f"{layer}.self_attn.o_proj.weight", (shape.hidden, queries)
        yield f"{layer}.mlp.gate_proj.weight", (shape.ffn, shape.hidden)
        yield f"{layer}.mlp.up_proj.weight", (shape.ffn, shape.hidden)
        yield f"{layer}.mlp.down_proj.weight", (shape.hidden, shape.ffn)


def initial_weights(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Random weights, each a leaf that takes gradients.

    The two projections that write to the residual stream are zero at first. So a new layer is the identity, and the
    first steps stay stable with Muon's updates of constant size.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {EMBEDDINGS: 0.02 * torch.randn(shape.vocabulary, shape.hidden, generator=generator)}
    for name, (rows, columns) in matrix_shapes(shape):
        if ".o_proj." in name or ".down_proj." in name:
            weights[name] = torch.zeros(rows, columns)
        else:
            weights[name] = torch.randn(rows, columns, generator=generator) * columns**-0.5
    for index in range(shape.layers):
        weights[f"model.layers.{index}.input_layernorm.weight"] = torch.ones(shape.hidden)
        weights[f"model.layers.{index}.post_attention_layernorm.weight"] = torch.ones(shape.hidden)
    weights["model.norm.weight"] = torch.ones(shape.hidden)
    return {name: weight.requires_grad_() for name, weight in weights.items()}


def logits(weights: Mapping[str, Tensor], shape: Shape, ids: Tensor) -> Tensor:
    """Logits ``(batch, length, vocabulary)`` for ids ``(batch, length)``; each row starts at position 0."""
    batch, length = ids.shape
    cosine, sine = _rotations(shape, length)

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, (shape.hidden,), weights[name], shape.epsilon)

    def heads(x: Tensor, name: str, count: int) -> Tensor:
        return functional.linear(x, weights[name]).view(batch, length, count, shape.head_dim).transpose(1, 2)

    x = functional.embedding(ids, weights[EMBEDDINGS])
    for index in range(shape.layers):
        layer = f"model.layers.{index}"
        y = norm(x, f"{layer}.input_layernorm.weight")
        query = _rotate(heads(y, f"{layer}.self_attn.q_proj.weight", shape.heads), cosine, sine)
        key = _rotate(heads(y, f"{layer}.self_attn.k_proj.weight", shape.kv_heads), cosine, sine)
        value = heads(y, f"{layer}.self_attn.v_proj.weight", shape.kv_heads)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        y = y.transpose(1, 2).reshape(batch, length, -1)
        x = x + functional.linear(y, weights[f"{layer}.self_attn.o_proj.weight"])
        y = norm(x, f"{layer}.post_attention_layernorm.weight")
        gate = functional.silu(functional.linear(y, weights[f"{layer}.mlp.gate_proj.weight"]))
        up = functional.linear(y, weights[f"{layer}.mlp.up_proj.weight"])
        x = x + functional.linear(gate * up, weights[f"{layer}.mlp.down_proj.weight"])
    return functional.linear(norm(x, "model.norm.weight"), weights[EMBEDDINGS])


def _rotations(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """The cosines and the sines of the angles of ``length`` positions, ``(length, head_dim / 2)`` each."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), shape.rope_base**-exponents)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary positions to the pairs (i, i + head_dim / 2) of every head, as Hugging Face pairs them."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
