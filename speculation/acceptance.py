"""Which drafts stand. The text is the target's whatever was drafted; drafts only decide how soon it is known."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import StrEnum

from speculation.sampling import Logits, Row, Sampling, choose


class Strategy(StrEnum):
    """Rule by which a draft is accepted."""

    COUPLED = "coupled"  # iff it equals the target's token under the shared noise (argmax at temperature 0)
    DETERMINISTIC = "deterministic"  # iff it equals the target's argmax, whatever the temperature


def effective_sampling(strategy: Strategy, sampling: Sampling) -> Sampling:
    """What the target samples with under `strategy`."""
    return replace(sampling, temperature=0.0) if strategy is Strategy.DETERMINISTIC else sampling


def judge(
    drafts: Sequence[int],
    rows: Sequence[Row] | Logits,
    sampling: Sampling,
    position: int,
    ends: AbstractSet[int],
) -> list[int]:
    """The target's tokens from `position` on: the drafts that stand, then one of its own.

    There are len(drafts) + 1 rows, logits of shape (vocab,) or their heads: row i follows drafts[:i]. Rows behind the
    first draft that falls are not looked at: they continue a text that does not exist. Stops after an end token.
    """
    tokens: list[int] = []
    for at, row in enumerate(rows):
        token = choose(row, sampling, position + at)
        tokens.append(token)
        if token in ends or at == len(drafts) or token != drafts[at]:
            break
    return tokens


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))
