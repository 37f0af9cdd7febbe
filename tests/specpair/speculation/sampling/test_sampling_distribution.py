"""Tokens drawn over many positions follow the softmax under the sampling settings."""

import numpy as np
import pytest

from specpair.speculation.sampling.sampling import Sampling, choose
from tests.specpair.speculation import chi_square

LOGITS = np.array([2.0, 0.5, 1.5, -1.0, 0.5, -np.inf, 1.0, 0.0], dtype=np.float32)
DRAWS = 4000


def probabilities(temperature: float, top_k: int, top_p: float) -> list[float]:
    """Softmax with filters, in the plainest form."""
    mass = {token: float(np.exp(float(logit) / temperature)) for token, logit in enumerate(LOGITS)}
    order = sorted(mass, key=lambda token: (-mass[token], token))[: top_k or None]
    total, kept, reached = sum(mass[token] for token in order), [], 0.0
    for token in order:
        kept.append(token)
        reached += mass[token]
        if reached >= top_p * total:
            break
    total = sum(mass[token] for token in kept)
    return [mass[token] / total if token in kept else 0.0 for token in range(len(LOGITS))]


def counts(sampling: Sampling) -> list[int]:
    drawn = [choose(LOGITS, sampling, position) for position in range(DRAWS)]
    return np.bincount(drawn, minlength=len(LOGITS)).tolist()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (3.0, 0, 1.0), (1.0, 3, 1.0), (1.0, 0, 0.8), (2.0, 6, 0.9), (0.7, 4, 0.7)],
)
def test_draws_follow_the_softmax(temperature: float, top_k: int, top_p: float) -> None:
    drawn = counts(Sampling(12345, temperature, top_k, top_p))
    assert chi_square.fits(drawn, probabilities(temperature, top_k, top_p))


def test_chi_square_rejects_other_distributions() -> None:
    drawn = counts(Sampling(12345, 1.0))
    assert not chi_square.fits(drawn, probabilities(1.3, 0, 1.0))
    assert not chi_square.fits(drawn, probabilities(1.0, 6, 1.0)), "an outcome of probability 0"


def test_draws_depend_on_the_seed_alone() -> None:
    def draws(seed: int) -> list[int]:
        return [choose(LOGITS, Sampling(seed, 1.0), position) for position in range(100)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def test_similar_distributions_mostly_draw_the_same_token() -> None:
    """With shared noise the agreement is far above that of two independent samplers."""
    near = LOGITS + np.array([0.1, -0.1, 0, 0.2, 0, 0, -0.1, 0], dtype=np.float32)
    positions = range(2000)
    shared = sum(choose(LOGITS, Sampling(5, 1.0), at) == choose(near, Sampling(5, 1.0), at) for at in positions)
    alone = sum(choose(LOGITS, Sampling(5, 1.0), at) == choose(near, Sampling(6, 1.0), at) for at in positions)
    assert shared > 0.9 * len(positions)
    assert alone < 0.4 * len(positions)
