"""How long a forward pass of the target takes, by its number of tokens: measured at load, then learnt from passes.

Drafters get the times measured at load from `GET /model`, so they know from the first draft on what a longer one costs.
They measure for themselves how long their own verify requests take.
"""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from statistics import median

from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.timing_ids import timing_ids
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.policy.estimates import Line

WIDEST = MAX_AUTO + 1  # tokens: the longest automatic draft and the pending token before it
_TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17)  # numbers of tokens whose passes are timed
_ROUNDS, _MOST_ROUNDS = 3, 12  # how many times each width is timed, and how many times in a fast engine
_FAST = 0.5  # seconds after which a width is not timed more than `_ROUNDS` times
_TIME_LIMIT = 4.0  # seconds after which no further pass is timed, once two widths are
_OUTLIER = 3.0  # multiple of the expected time: in a longer pass something else ran (another process, a compilation)


def pass_cost(backend: Backend, clock: Callable[[], float]) -> list[float]:
    """Seconds of passes over 1, 2, … `WIDEST` tokens, measured in slot 0, which is released afterwards.

    The passes are those of verifying: behind a first token, since an engine may have other passes for a prompt, and
    each takes back all but one of the last one's tokens. The minimum of several passes per width counts, since the
    first one may also prepare what later ones use. Where an engine reads tokens again (`Backend.reread`), what that
    takes in the median is added to the passes of more than one token: they are why. Widths that were not timed are
    interpolated. Takes four seconds at most, or three passes of a very slow engine. The result is empty for an engine
    that takes only one token per pass.
    """
    token, ids = backend.vocabulary.begin or 0, timing_ids(backend.vocabulary.size, WIDEST)
    most = min(backend.max_batch_tokens, backend.context_length - 1)
    if backend.max_rollback is not None:
        most = min(most, backend.max_rollback)
    widths = [width for width in _TRIED if width <= most]
    backend.extend([Entry(0, 0, [token], 1)])
    least: dict[int, float] = {}
    rereading: list[tuple[int, float]] = []  # widths and seconds
    began, at = clock(), 1
    # Up and down, so that what an engine does every few passes does not always meet the same width.
    rounds = [widths[::-1] if number % 2 else widths for number in range(_MOST_ROUNDS)]
    for number, width in enumerate(chain(widths[:2], *rounds)):
        started = clock()
        limit = _TIME_LIMIT if number < 2 + _ROUNDS * len(widths) else _FAST
        if started - began > limit and len(least) > 1:
            break
        if at + width > backend.context_length:
            backend.extend([Entry(0, 0, [token], 1)])
            at, started = 1, clock()
        rereads = backend.reread(0, at) > 0
        backend.extend_top_logits([Entry(0, at, ids[:width], 0)], [TopLogitsSpec(1, 1.0, backend.vocabulary.size)])
        took = clock() - started
        least[width] = min(took, least.get(width, float("inf")))
        if rereads:
            rereading.append((width, took))
        at += 1
    backend.release(0)
    more = median(took - least[width] for width, took in rereading) if rereading else 0.0
    return interpolate(sorted((width, took + more * (width > 1)) for width, took in least.items()))


def interpolate(points: list[tuple[int, float]]) -> list[float]:
    """Seconds for 1, 2, … `WIDEST` tokens. `points`: the measured (tokens, seconds)."""
    if len(points) < 2:
        return []
    segments = list(pairwise(points))
    curve = []
    for width in range(1, WIDEST + 1):
        (left, low), (right, high) = next((segment for segment in segments if width <= segment[1][0]), segments[-1])
        curve.append(max(0.0, low + (high - low) * (width - left) / (right - left)))
    return curve


class PassTime:
    """Estimates how long a pass takes: a line over its number of tokens, fitted with exponential forgetting.

    The line is constant until passes of different widths were seen, and 0 before the first pass.
    """

    def __init__(self, pass_times: Sequence[float] = ()) -> None:
        """`pass_times`: seconds of passes over 1, 2, … tokens, from `pass_cost`."""
        self._line = Line(0.98, 0.0)
        for tokens, seconds in enumerate(pass_times, 1):
            self.learn(tokens, seconds)

    def at(self, tokens: int) -> float:
        """Seconds that a pass over `tokens` tokens is estimated to take."""
        return self._line.at(tokens)

    def learn(self, tokens: int, seconds: float) -> None:
        """Learn from a pass over `tokens` tokens that took `seconds`."""
        known = self.at(tokens)
        self._line.learn(tokens, min(seconds, _OUTLIER * known) if known else seconds)
