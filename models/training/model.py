"""The Llama architecture in plain PyTorch, as a function of named weights.

Pre-norm decoder with RMSNorm (Zhang and Sennrich, 2019), rotary positions (Su et al., 2021), grouped-query attention
(Ainslie et al., 2023), SwiGLU (Shazeer, 2020), no biases, and the embeddings as LM head. The weights are a dictionary
under their Hugging Face names, which is saved as it is; there are no modules."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from models.errors import ExportError
from models.safetensors_file import llama_shapes, read_tensors
from models.training.corpus import BEGIN_ID, END_ID

EMBEDDINGS: Final = "model.embed_tokens.weight"
MATRIX_RATE: Final = 0.02  # peak learning rate of Muon
VECTOR_RATE: Final = 3e-3  # peak learning rate of AdamW
Weights = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


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

    @property
    def config(self) -> dict[str, Any]:
        """The contents of a Hugging Face ``config.json``."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_act": "silu",
            "bos_token_id": BEGIN_ID,
            "eos_token_id": END_ID,
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


def initial_weights(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Random weights, each a leaf that takes gradients.

    The two projections that write to the residual stream are zero at first. So a new layer is the identity, and the
    first steps stay stable with Muon's updates of constant size.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in llama_shapes(shape.config).items():
        if len(size) == 1:
            weights[name] = torch.ones(size)
        elif ".o_proj." in name or ".down_proj." in name:
            weights[name] = torch.zeros(size)
        else:
            scale = 0.02 if name == EMBEDDINGS else size[1] ** -0.5
            weights[name] = scale * torch.randn(size, generator=generator)
    return {name: weight.requires_grad_() for name, weight in weights.items()}


def logits(weights: Mapping[str, Tensor], shape: Shape, ids: Tensor) -> Tensor:
    """Logits ``(batch, length, vocabulary)`` for ids ``(batch, length)``; each row starts at position 0."""
    return functional.linear(hidden_states(weights, shape, ids), weights[EMBEDDINGS])


def hidden_states(weights: Mapping[str, Tensor], shape: Shape, ids: Tensor) -> Tensor:
    """What the LM head reads, ``(batch, length, hidden)``: the last layer's output after the final norm."""
    x = functional.embedding(ids, weights[EMBEDDINGS])
    for index in range(shape.layers):
        x = layer(weights, index, shape, x)
    return norm(x, weights["model.norm.weight"], shape)


def layer(weights: Mapping[str, Tensor], index: int, shape: Shape, x: Tensor) -> Tensor:
    """The layer's output for its input, both ``(batch, length, hidden)``; each row starts at position 0."""
    batch, length, _ = x.shape
    cosine, sine = _rotations(shape, length)
    name = f"model.layers.{index}"

    def heads(x: Tensor, part: str, count: int) -> Tensor:
        return (
            functional.linear(x, weights[f"{name}.{part}"]).view(batch, length, count, shape.head_dim).transpose(1, 2)
        )

    y = norm(x, weights[f"{name}.input_layernorm.weight"], shape)
    query = _rotate(heads(y, "self_attn.q_proj.weight", shape.heads), cosine, sine)
    key = _rotate(heads(y, "self_attn.k_proj.weight", shape.kv_heads), cosine, sine)
    value = heads(y, "self_attn.v_proj.weight", shape.kv_heads)
    y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    y = y.transpose(1, 2).reshape(batch, length, -1)
    x = x + functional.linear(y, weights[f"{name}.self_attn.o_proj.weight"])
    y = norm(x, weights[f"{name}.post_attention_layernorm.weight"], shape)
    gate = functional.silu(functional.linear(y, weights[f"{name}.mlp.gate_proj.weight"]))
    up = functional.linear(y, weights[f"{name}.mlp.up_proj.weight"])
    return x + functional.linear(gate * up, weights[f"{name}.mlp.down_proj.weight"])


def norm(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """RMSNorm over the last dimension."""
    return functional.rms_norm(x, (shape.hidden,), weight, shape.epsilon)


def _rotations(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """The cosines and the sines of the angles of ``length`` positions, ``(length, head_dim / 2)`` each."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), shape.rope_base**-exponents)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary positions to the pairs (i, i + head_dim / 2) of every head, as Hugging Face pairs them."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def fit(
    weights: Weights,
    shape: Shape,
    batches: Iterator[NDArray[np.int64]],
    steps: int,
    loss: Loss,
    report: Callable[[int, float], None],
    peak: float = 1.0,
) -> None:
    """Train the weights in place for ``steps`` steps, each on one batch of ids ``(batch, length + 1)``.

    ``loss(predicted, inputs, targets)`` takes logits ``(batch, length, vocabulary)`` and two id tensors ``(batch,
    length)``; ``report`` gets the number of steps done and the loss in nats; ``peak`` scales both learning rates.
    """
    optimise(
        weights,
        batches,
        steps,
        lambda inputs, targets: loss(logits(weights, shape, inputs), inputs, targets),
        report,
        peak,
    )


def optimise(
    weights: Weights,
    batches: Iterator[NDArray[np.int64]],
    steps: int,
    loss: Callable[[Tensor, Tensor], Tensor],
    report: Callable[[int, float], None],
    peak: float = 1.0,
) -> None:
    """Train the weights in place as ``fit`` does; ``loss(inputs, targets)`` computes its own predictions."""
    names = {name for name, weight in weights.items() if weight.ndim == 2 and name != EMBEDDINGS}
    others = [weight for name, weight in weights.items() if name not in names]
    optimisers = (
        torch.optim.Muon([weights[name] for name in sorted(names)], MATRIX_RATE, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, VECTOR_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    )
    rates = [LambdaLR(optimiser, lambda step: peak * schedule(step, steps)) for optimiser in optimisers]
    for step in range(steps):
        rows = torch.from_numpy(next(batches))
        inputs, targets = rows[:, :-1], rows[:, 1:]
        value = loss(inputs, targets)
        for weight in weights.values():
            weight.grad = None
        torch.autograd.backward(value)
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        for optimiser, rate in zip(optimisers, rates, strict=True):
            optimiser.step()
            rate.step()
        report(step + 1, value.item())


def schedule(step: int, steps: int) -> float:
    """The learning rate at a step of ``steps``, as a share of the peak rate.

    It rises linearly over 50 steps (at most a tenth of all), stays at 1, and falls linearly to 0.02 over the last
    0.6 of the steps.
    """
    left = (steps - step) / max(1.0, 0.6 * steps)
    return min((step + 1) / max(1, min(50, steps // 10)), 1.0, 0.02 + 0.98 * left)


def cross_entropy(predicted: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of the text, in nats per token."""
    return functional.cross_entropy(predicted.flatten(0, 1), targets.flatten())


def imitation(teacher: Mapping[str, Tensor], shape: Shape) -> Loss:
    """The loss of distillation (Hinton et al., 2015): mean KL(teacher || student) per token, in nats.

    A draft model should predict the target's token, not the token of the text.
    """

    def loss(predicted: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = logits(teacher, shape, inputs).log_softmax(-1)
        divergence = functional.kl_div(predicted.log_softmax(-1), wanted, log_target=True, reduction="sum")
        return divergence / targets.numel()

    return loss


def held_out_loss(weights: Mapping[str, Tensor], shape: Shape, tokens: NDArray[np.uint16], length: int) -> float:
    """The mean cross entropy of the held-out ``tokens`` in nats per token, in windows of ``length`` tokens."""
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, length):
            row = torch.from_numpy(tokens[start : start + length + 1].astype(np.int64))[None]
            predicted = logits(weights, shape, row[:, :-1])
            total += functional.cross_entropy(predicted[0], row[0, 1:], reduction="sum").item()
            count += row.shape[1] - 1
    return total / count


def save(folder: Path, weights: Mapping[str, Tensor], shape: Shape) -> None:
    """Write ``config.json`` and ``model.safetensors``. The weights come last: their presence marks a finished stage."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape.config, indent=2) + "\n", encoding="utf-8")
    partial = folder / "model.safetensors.part"
    save_file({name: weight.detach().half() for name, weight in weights.items()}, partial, {"format": "pt"})
    partial.replace(folder / "model.safetensors")


def load(folder: Path, shape: Shape) -> Weights:
    """Read weights that ``save`` wrote, as float32 leaves. Raises ExportError for a model of another shape."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config != shape.config:
        raise ExportError(f"{folder} holds a model of other sizes: name another folder with --out, or remove that one")
    tensors = read_tensors(folder / "model.safetensors")
    return {name: torch.from_numpy(data).requires_grad_() for name, data in tensors.items()}
