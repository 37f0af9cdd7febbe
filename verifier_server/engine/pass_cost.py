"""What a forward pass takes by the tokens in it, tried out once when the model is there.

Drafters ask for it (`GET /model`) to know from their first guess on how much a longer one costs; what theirs really
take, they see for themselves.
"""

from collections.abc import Callable
from itertools import pairwise

from backends.base import Backend, Entry, HeadOf
from speculation.policy.draft_length import MAX_AUTO

WIDEST = MAX_AUTO + 1  # tokens: the longest automatic guess, and the token before it
_TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17)
_ROUNDS = 3
_PATIENCE = 2.0  # seconds after which no further pass is tried, once two widths are known


def pass_cost(backend: Backend, clock: Callable[[], float]) -> list[float]:
    """Milliseconds of a pass over 1, 2, … `WIDEST` tokens, tried in the first row, which is released again.

    The least of several passes, since the first of a width may also prepare what later ones use; straight lines
    between the widths tried. Takes some two seconds, or two passes of a very slow engine. Empty for an engine that
    takes no two tokens at once.
    """
    token = backend.vocabulary.begin or 0
    widths = [width for width in _TRIED if width <= min(backend.max_batch_tokens, backend.context_length)]
    least: dict[int, float] = {}
    began = clock()
    for width in widths[:2] + widths * _ROUNDS:
        started = clock()
        if started - began > _PATIENCE and len(least) > 1:
            break
        backend.heads([Entry(0, 0, [token] * width, 0)], [HeadOf(1, 1.0, backend.vocabulary.size)])
        least[width] = min(1e3 * (clock() - started), least.get(width, float("inf")))
    backend.release(0)
    return _lines(sorted(least.items()))


def _lines(points: list[tuple[int, float]]) -> list[float]:
    if len(points) < 2:
        return []
    segments = list(pairwise(points))
    curve = []
    for width in range(1, WIDEST + 1):
        (left, low), (right, high) = next((segment for segment in segments if width <= segment[1][0]), segments[-1])
        curve.append(max(0.0, low + (high - low) * (width - left) / (right - left)))
    return curve
