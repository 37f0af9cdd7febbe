"""Trains a model's weights on a stream of windows, and saves and loads them.

This module has the recipe's optimiser settings: Muon for matrices, AdamW for embeddings and norms, which are not linear
maps between hidden states, and one schedule. (Muon: K. Jordan, Y. Jin, V. Boza, J. You, F. Cesista, L. Newhouse, J.
Bernstein, "Muon: An optimizer for hidden layers in neural networks", 2024, https://kellerjordan.github.io/posts/muon/.)
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from models.errors import ExportError
from models.safetensors_file import read_tensors
from models.training.corpus import BEGIN_ID, END_ID
from models.training.llama import Shape, logits, matrix_shapes

MATRIX_RATE: Final = 0.02  # peak learning rate of Muon
VECTOR_RATE: Final = 3e-3  # peak learning rate of AdamW

Weights = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


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
    names = {name for name, _ in matrix_shapes(shape)}
    others = [weight for name, weight in weights.items() if name not in names]
    optimisers = (
        torch.optim.Muon([weights[name] for name in sorted(names)], MATRIX_RATE, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, VECTOR_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    )
    rates = [LambdaLR(optimiser, lambda step: peak * schedule(step, steps)) for optimiser in optimisers]
    for step in range(steps):
        rows = torch.from_numpy(next(batches))
        inputs, targets = rows[:, :-1], rows[:, 1:]
        value = loss(logits(weights, shape, inputs), inputs, targets)
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
    (folder / "config.json").write_text(json.dumps(shape.config(BEGIN_ID, END_ID), indent=2) + "\n", encoding="utf-8")
    partial = folder / "model.safetensors.part"
    save_file({name: weight.detach().half() for name, weight in weights.items()}, partial, {"format": "pt"})
    partial.replace(folder / "model.safetensors")


def load(folder: Path, shape: Shape) -> Weights:
    """Read weights that ``save`` wrote, as float32 leaves. Raises ExportError for a model of another shape."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config != shape.config(BEGIN_ID, END_ID):
        raise ExportError(f"{folder} holds a model of other sizes: name another folder with --out, or remove that one")
    tensors = read_tensors(folder / "model.safetensors")
    return {name: torch.from_numpy(data).requires_grad_() for name, data in tensors.items()}
