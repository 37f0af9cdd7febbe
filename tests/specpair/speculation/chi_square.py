"""Chi-square tests of counts against a distribution, without SciPy."""

import math
from collections.abc import Sequence


def fits(counts: Sequence[int], probabilities: Sequence[float], z: float = 3.5) -> bool:
    """Pearson's chi-square test: whether `counts` follow `probabilities`.

    With z = 3.5 a true distribution is rejected once in 4,000 samples; the tests fix their samples by seeds. Outcomes
    of probability 0 must not occur at all.
    """
    total = sum(counts)
    possible = [(count, total * p) for count, p in zip(counts, probabilities, strict=True) if p > 0]
    if total != sum(count for count, _ in possible):
        return False
    assert all(expected >= 5 for _, expected in possible), "too few samples for the test to mean anything"
    statistic = sum((count - expected) ** 2 / expected for count, expected in possible)
    freedom = len(possible) - 1
    if freedom == 0:
        return True
    share = 2 / (9 * freedom)  # Wilson and Hilferty: the cube root of chi-square is nearly normal
    return statistic <= freedom * (1 - share + z * math.sqrt(share)) ** 3


def fits_pooled(counts: Sequence[int], probabilities: Sequence[float], least: float = 8.0) -> bool:
    """`fits` with all possible outcomes that are expected less than `least` times pooled into one."""
    total = sum(counts)
    rare = [0.0 < p * total < least for p in probabilities]
    kept = [at for at, is_rare in enumerate(rare) if not is_rare]
    pooled = sum(count for count, is_rare in zip(counts, rare, strict=True) if is_rare)
    chance = sum(p for p, is_rare in zip(probabilities, rare, strict=True) if is_rare)
    if chance * total < least:  # too rare even when pooled: add them to the commonest outcome
        commonest = max(kept, key=lambda at: probabilities[at])
        return fits(
            [counts[at] + pooled * (at == commonest) for at in kept],
            [probabilities[at] + chance * (at == commonest) for at in kept],
        )
    return fits([*(counts[at] for at in kept), pooled], [*(probabilities[at] for at in kept), chance])
