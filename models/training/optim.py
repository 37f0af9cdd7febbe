"""The Muon optimiser for matrices, and the learning rate schedule.

Muon: K. Jordan, Y. Jin, V. Boza, J. You, F. Cesista, L. Newhouse, J. Bernstein, "Muon: An optimizer for hidden layers
in neural networks", 2024, https://kellerjordan.github.io/posts/muon/. It replaces the momentum of a matrix by the
nearest matrix whose singular values are all about one, so that rare directions move as much as common ones. Embeddings
and norms are not linear maps between hidden states and stay with AdamW.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

# A quintic whose iteration drives every singular value in (0, 1] into about [0.7, 1.2]; Jordan's coefficients.
_QUINTIC: Final = (3.4445, -4.7750, 2.0315)


def orthogonalised(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return a matrix with the singular vectors of the given one and singular values near one.

    Newton-Schulz iteration in float32: products of matrices only, cheaper than a singular value decomposition.
    """
    a, b, c = _QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = matrix.T if tall else matrix  # so that the products below have the smaller size
    x = x / (x.norm() + 1e-7)  # the Frobenius norm bounds the largest singular value
    for _ in range(iterations):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    result: Tensor = x.T if tall else x
    return result


class Muon:
    """Nesterov momentum, orthogonalised, with decoupled weight decay.

    The caller sets ``rate`` before each step. It is the size of an update's singular values, so it does not depend on
    the scale of the loss.
    """

    def __init__(self, matrices: Sequence[Tensor], *, momentum: float = 0.95, weight_decay: float = 0.01) -> None:
        self.rate = 0.0
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._state = [(matrix, torch.zeros_like(matrix)) for matrix in matrices]

    def step(self) -> None:
        """Update every matrix that has a gradient."""
        with torch.no_grad():
            for matrix, average in self._state:
                if matrix.grad is None:
                    continue
                average.lerp_(matrix.grad, 1 - self._momentum)
                ahead = matrix.grad.lerp(average, self._momentum)
                # A tall matrix has more outputs than inputs: scale it so that all outputs move equally.
                scale = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - self.rate * self._weight_decay)
                matrix.add_(orthogonalised(ahead), alpha=-self.rate * scale)


def schedule(step: int, steps: int, *, warm_up: int = 50, decay: float = 0.6, floor: float = 0.02) -> float:
    """The learning rate at a step of ``steps``, as a share of the peak rate.

    It rises linearly over ``warm_up`` steps (at most a tenth of all), stays at 1, and falls linearly to ``floor`` over
    the last ``decay`` (a share) of the steps.
    """
    warm_up = max(1, min(warm_up, steps // 10))
    left = (steps - step) / max(1.0, decay * steps)
    return min((step + 1) / warm_up, 1.0, floor + (1 - floor) * left)
