"""What a forward pass takes by the tokens in it: tried out at the start, then kept up to date by real passes.

Drafters ask for it (`GET /model`) to know from their first guess on how much a longer one costs.
"""

from collections.abc import Callable
from itertools import pairwise

from backends.contract import Backend, Entry
from speculation.estimates import Mean

WIDEST = 17  # tokens; no automatic guess is longer than 16
_TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17)
_ROUNDS = 3
_PATIENCE = 2.0  # seconds after which no further pass is tried, once two widths are known


class PassCost:
    """Milliseconds of a pass over 1 … `WIDEST` tokens. `learn` is for one thread, `curve` for any."""

    def __init__(self) -> None:
        self._seen: dict[int, Mean] = {}

    def learn(self, width: int, milliseconds: float) -> None:
        """Take in what a pass over so many tokens took; wider ones than `WIDEST` are not kept."""
        if width > WIDEST:
            return
        if width not in self._seen:
            self._seen = {**self._seen, width: Mean(0.9)}  # a new one: `curve` may be reading the other
        self._seen[width].learn(milliseconds)

    def curve(self) -> list[float]:
        """Milliseconds for 1, 2, … tokens; between two widths seen, a straight line. Empty before two are known."""
        known = sorted((width, mean.value) for width, mean in self._seen.items())
        if len(known) < 2:
            return []
        segments = list(pairwise(known))
        curve = []
        for width in range(1, WIDEST + 1):
            (left, low), (right, high) = next((s for s in segments if width <= s[1][0]), segments[-1])
            curve.append(max(0.0, low + (high - low) * (width - left) / (right - left)))
        return curve


def measure(backend: Backend, clock: Callable[[], float]) -> PassCost:
    """Try passes of several widths in the first row, which is released again. Some two seconds at most."""
    cost = PassCost()
    token = backend.vocabulary.begin or 0
    widest = min(backend.max_batch_tokens, backend.context_length)
    backend.extend([Entry(0, 0, [token], 0)])  # the very first pass also makes what later ones reuse
    began = clock()
    for width in [width for width in _TRIED if width <= widest] * _ROUNDS:
        started = clock()
        if started - began > _PATIENCE and cost.curve():
            break
        backend.extend([Entry(0, 0, [token] * width, 0)])
        cost.learn(width, 1e3 * (clock() - started))
    backend.release(0)
    return cost
