"""What a forward pass takes by the tokens in it: tried out at load, learnt from passes.

Drafters ask for the times tried out (`GET /model`): from their first draft on they know what a longer draft costs.
What their own verify requests take they measure themselves.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from backends.base import Backend, Entry, TopLogitsSpec
from speculation.policy.draft_length import MAX_AUTO
from speculation.policy.estimates import Line

WIDEST = MAX_AUTO + 1  # tokens: the longest automatic draft and the pending token before it
_TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17)  # tokens of the passes tried
_ROUNDS = 3
_TIME_LIMIT = 2.0  # seconds after which no further pass is tried, once two widths are measured
_OUTLIER = 3.0  # times the expected time: in a longer pass something else ran (another process, a compilation)


def pass_cost(backend: Backend, clock: Callable[[], float]) -> list[float]:
    """Milliseconds of a pass over 1, 2, … `WIDEST` tokens, measured in slot 0, which is released afterwards.

    The minimum of several passes per width, since the first one may also prepare what later ones use; linear
    interpolation between the widths tried. Takes about two seconds, or two passes of a very slow engine. Empty for an
    engine that takes only one token per pass.
    """
    token = backend.vocabulary.begin or 0
    widths = [width for width in _TRIED if width <= min(backend.max_batch_tokens, backend.context_length)]
    least: dict[int, float] = {}
    began = clock()
    for width in widths[:2] + widths * _ROUNDS:
        started = clock()
        if started - began > _TIME_LIMIT and len(least) > 1:
            break
        backend.extend_top_logits([Entry(0, 0, [token] * width, 0)], [TopLogitsSpec(1, 1.0, backend.vocabulary.size)])
        least[width] = min(1e3 * (clock() - started), least.get(width, float("inf")))
    backend.release(0)
    return _interpolate(sorted(least.items()))


def _interpolate(points: list[tuple[int, float]]) -> list[float]:
    if len(points) < 2:
        return []
    segments = list(pairwise(points))
    curve = []
    for width in range(1, WIDEST + 1):
        (left, low), (right, high) = next((segment for segment in segments if width <= segment[1][0]), segments[-1])
        curve.append(max(0.0, low + (high - low) * (width - left) / (right - left)))
    return curve


class PassTime:
    """Fits a line to the times of the passes run, with exponential forgetting. In seconds.

    The line is constant until passes of different widths were seen, and 0.0 before the first pass.
    """

    def __init__(self, pass_ms: Sequence[float] = ()) -> None:
        """`pass_ms[n]`: milliseconds of a pass over n + 1 tokens, from `pass_cost`."""
        self._line = Line(0.98, 0.0)
        for tokens, milliseconds in enumerate(pass_ms, 1):
            self.learn(tokens, milliseconds / 1e3)

    def at(self, tokens: int) -> float:
        """The estimate for a pass over `tokens` tokens."""
        return self._line.at(tokens)

    def learn(self, tokens: int, seconds: float) -> None:
        """Learn from one pass."""
        known = self.at(tokens)
        self._line.learn(tokens, min(seconds, _OUTLIER * known) if known else seconds)
