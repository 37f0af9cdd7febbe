"""How long a forward pass of the target takes, by its number of tokens: measured at load, then learnt from passes.

Drafters get the times measured at load from `GET /model`, so they know from the first draft on what a longer one costs.
They measure for themselves how long their own verify requests take.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import chain
from statistics import median

from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.probe_texts import timing_ids
from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.policy.timing import NARROW, Line

_TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17)  # numbers of tokens whose passes are timed
WIDER = (32, 64, 128, 256, 512)  # numbers of tokens, as in passes that many sessions share
_WIDER_ROUNDS, _WIDER_LIMIT = 2, 0.5  # how many times each is timed, and within how many seconds all of them
_CHUNK, _LONGER = 128, 1.5  # least tokens of a prompt in a pass, and how much longer more of them may make it
_ROUNDS, _MOST_ROUNDS = 3, 12  # how many times each width is timed, and how many times in a fast engine
_FAST = 0.5  # seconds after which a width is not timed more than `_ROUNDS` times
_TIME_LIMIT = 4.0  # seconds after which no further pass is timed, once two widths are
_OUTLIER = 3.0  # multiple of the expected time: in a longer pass something else ran (another process, a compilation)


def pass_cost(backend: Backend, clock: Callable[[], float]) -> CostByWidth:
    """Seconds of passes over 1, 2, … `NARROW` tokens, measured in slot 0, which is released afterwards.

    The passes are those of verifying: behind a first token, since an engine may have other passes for a prompt, and
    each takes back all but one of the last one's tokens. The minimum of several passes per width counts, since the
    first one may also prepare what later ones use. Where an engine reads tokens again (`Backend.reread`), what that
    takes in the median is added to the passes of more than one token: they are why. Takes four seconds at most, or
    three passes of a very slow engine. The result is empty for an engine that takes only one token per pass.
    """
    token, ids = backend.vocabulary.begin or 0, timing_ids(backend.vocabulary.size, NARROW)
    widths = _possible(_TRIED, backend)
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


def shared_pass_cost(backend: Backend, clock: Callable[[], float], pass_times: Sequence[float]) -> CostByWidth:
    """`pass_times` from `pass_cost`, followed by the times of the wider passes that sessions share.

    These are measured as the narrow ones, each twice, up to the widest that the engine takes and for which half a
    second suffices, if it takes in proportion to its tokens.
    """
    widths = _possible(WIDER, backend)
    if not widths or not pass_times:
        return CostByWidth.of(pass_times)
    ids, spent, points = timing_ids(backend.vocabulary.size, max(widths)), 0.0, list[tuple[int, float]]()
    narrower, last = len(pass_times), pass_times[-1]
    backend.extend([Entry(0, 0, [backend.vocabulary.begin or 0], 1)])
    for width in widths:
        if spent + _WIDER_ROUNDS * last * width / narrower > _WIDER_LIMIT:
            break
        took = []
        for _ in range(_WIDER_ROUNDS):
            began = clock()
            # Logits of the last tokens alone: an engine may keep the memory for more.
            batch = [Entry(0, 1, ids[:width], width - NARROW)]
            backend.extend_top_logits(batch, [TopLogitsSpec(1, 1.0, backend.vocabulary.size)])
            took.append(clock() - began)
        spent, narrower, last = spent + sum(took), width, min(took)
        points.append((width, last))
    backend.release(0)
    return CostByWidth([*enumerate(pass_times, 1), *points])


def prefill_chunk(pass_times: Sequence[float]) -> int:
    """How many tokens of prompts a pass should have while other sessions are active: as many as make a pass of one
    token half as long again, but `_CHUNK` at least. `pass_times`: seconds of passes over 1, 2, … tokens."""
    cost = CostByWidth.of(pass_times)
    return max(_CHUNK, bisect(cost, _LONGER * cost.at(1)))


def _possible(widths: Sequence[int], backend: Backend) -> list[int]:
    """The widths that the engine can run and roll back."""
    most = min(backend.max_batch_tokens, backend.context_length - 1)
    if backend.max_rollback is not None:
        most = min(most, backend.max_rollback)
    return [width for width in widths if width <= most]


def interpolate(points: Sequence[tuple[int, float]]) -> CostByWidth:
    """Seconds for 1, 2, … `NARROW` tokens; empty if fewer than two widths were measured.

    `points`: the measured (tokens, seconds).
    """
    cost = CostByWidth(points)
    return CostByWidth.of([cost.at(width) for width in range(1, NARROW + 1)] if len(points) > 1 else [])


class PassTime:
    """Estimates how long a pass takes: a line over its number of tokens, fitted with exponential forgetting.

    The line is constant until passes of different widths were seen, and 0 before the first pass.
    """

    def __init__(self, pass_times: Sequence[float] = ()) -> None:
        """`pass_times`: seconds of passes over 1, 2, … tokens, from `pass_cost`; it learns from the narrow ones."""
        self._line = Line(0.98, 0.0)
        for tokens, seconds in enumerate(CostByWidth.of(pass_times)[:NARROW], 1):
            self.learn(tokens, seconds)

    def at(self, tokens: int) -> float:
        """Seconds that a pass over `tokens` tokens is estimated to take."""
        return self._line.at(tokens)

    def learn(self, tokens: int, seconds: float) -> None:
        """Learn from a pass over `tokens` tokens that took `seconds`."""
        known = self.at(tokens)
        self._line.learn(tokens, min(seconds, _OUTLIER * known) if known else seconds)
