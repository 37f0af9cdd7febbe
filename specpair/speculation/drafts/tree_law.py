"""How long a text stays in a draft tree, by a law: each choice of the draft model is right with a chance of its own."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import nlargest

_STEPS = 50  # chances are taken by fiftieths, so that few are computed


def levels(first: float, others: Sequence[float], width: int, depth: int) -> Sequence[float]:
    """Item k: chance that the text is in the tree after k tokens, for k up to `depth`.

    `first`: chance of the first choice.
    `others`: of each choice after it, where the first is wrong.
    `width`: nodes of a level that are expanded, the likeliest.
    """
    return _levels(round(first * _STEPS), tuple(round(each * _STEPS) for each in others), width, depth)


@lru_cache(maxsize=1024)
def _levels(first: int, others: tuple[int, ...], width: int, depth: int) -> Sequence[float]:
    right = first / _STEPS
    chances = [right, *((1.0 - right) * each / _STEPS for each in others)]
    return tuple(_expanded(chances, width, depth))


def _expanded(chances: Sequence[float], width: int, depth: int) -> Iterator[float]:
    level = [1.0]
    yield 1.0
    for _ in range(depth):
        below = [node * each for node in level for each in chances]
        yield sum(below)
        level = nlargest(width, below)
