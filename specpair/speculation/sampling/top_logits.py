"""The top logits of a row: its greatest few logits and the mass of all, for engines that keep the row on the device.

A row of 152,000 logits is a fetch of 608 KB. The greatest thousand and the sum over all decide nearly every token. For
the others, `whole` fetches the row.

A draw chooses the same id as `full_logits.winner` on the sorted row, or leaves it undecided. Two bounds hold for the
ids outside the top logits: none of their logits exceeds the smallest top logit, and their mass is what remains of the
sum. So the best score among the top logits wins unless the noise of an id outside makes up for the distance. Such ids
are found by their noise alone. An id is certain to pass the filters if it passes them for every row that the bounds
allow. Where this leaves the choice open, the caller decides on the whole row.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.full_logits import Logits as Logits
from specpair.speculation.sampling.full_logits import top_ids, winner

_DOUBT = 1e-4  # relative error bound of a float32 sum over a vocabulary, far above its rounding
_DOUBT_OF_TERMS = 1e-6  # added to `_DOUBT` per unit of |log_sum|: the device scales and adds in float32
_ORDER = 1e-9  # relative bound on the difference between float64 sums of one vocabulary in different order
# Most rivals (ids outside whose noise suffices to win) to be expected for a search. With more of them, only one row in
# fifty has none, and the search costs as much as the row.
_MANY = 4


class TopLogitsSpec(NamedTuple):
    """The top logits wanted of each row of logits of an entry: the `size` greatest logits of the ids below `below`, and
    the log of the sum of exp(logit / `temperature`) over all of these ids. Greedy decoding needs a `size` of 1 only.

    A `size` of None: the whole row of the ids below `below` is wanted instead."""

    size: int | None
    temperature: float
    below: int


@dataclass(slots=True, eq=False)
class TopLogits:
    """The greatest logits of one row. They may be given in any order.

    They are sorted by logit descending, then id ascending.

    `ids`          their ids, each once, shape (n,) with 1 <= n <= size
    `logits`       as in the row, neither scaled nor shifted, shape (n,)
    `size`         number of ids of the row
    `temperature`  of `log_sum`: `Sampling.softmax_temperature`
    `log_sum`      log of the sum of exp(logit / temperature) over the whole row; float32 precision suffices
    `full`         fetches the whole row, shape (size,), float32; called once at most, and only before the next pass

    The device chooses which of several ids tied at the smallest logit are included. But a single id is the smallest of
    those with the greatest logit, as `argmax` returns it. The logits may hold NaN, which `check` finds. Raises
    ValueError for other shapes than stated and for a temperature that is not positive.
    """

    ids: NDArray[np.int64]
    logits: Logits
    size: int
    temperature: float
    log_sum: float
    full: Callable[[], Logits]
    sure: int = field(init=False)  # how many of the first ids also lead the sorted whole row, in the same order
    outside: int = field(init=False)  # how many ids of the row are not included and may be chosen
    doubt: float = field(init=False)  # bound on the relative error of the sum; from 1 on the sum is useless
    _known: NDArray[np.int64] = field(init=False)  # ids that are not outside
    _whole: Logits | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        ids, logits = np.asarray(self.ids, np.int64), np.asarray(self.logits, np.float32)
        if ids.ndim != 1 or ids.shape != logits.shape or not 1 <= len(ids) <= self.size:
            raise ValueError(
                f"top logits with ids of shape {ids.shape} and logits of shape {logits.shape} for a row of "
                f"{self.size}: give one logit for each id"
            )
        if not self.temperature > 0.0:
            raise ValueError(
                f"top logits at temperature {self.temperature}: it must be above 0 (1 where a session is greedy)"
            )
        self.log_sum = float(self.log_sum)  # engines give scalars of their own types
        order = np.lexsort((ids, -logits))  # NaN comes last
        self.ids, self.logits = ids[order], logits[order]
        self._known = self.ids
        self.outside = self.size - len(ids)
        least = self.logits[-1]
        if least == -inf:  # neither the ids outside nor those at -inf can be chosen
            finite = int(np.count_nonzero(self.logits > -inf))
            self.ids, self.logits, self.outside = self.ids[:finite], self.logits[:finite], 0
        if self.outside and len(ids) > 1:
            self.sure = int(np.count_nonzero(self.logits > least))
        else:
            self.sure = len(self.ids)
        self.doubt = _DOUBT + _DOUBT_OF_TERMS * abs(self.log_sum)

    def check(self) -> None:
        """Raise ValueError where the row holds a NaN or no finite value."""
        if not len(self.ids) or not all(map(isfinite, (self.log_sum, self.logits[0], self.logits[-1]))):
            raise ValueError("logits without a finite maximum: the engine returned NaN or infinity")

    def whole(self) -> Logits:
        """The whole row, float32 of shape (size,), which may be written to."""
        if self._whole is None:
            row = np.asarray(self.full(), np.float32)
            if row.shape != (self.size,):
                raise ValueError(
                    f"`full` returned a row of shape {row.shape}, not ({self.size},) as the top logits say"
                )
            self._whole = row if row.flags.writeable else row.copy()
        return self._whole

    def holds(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` are included; bool of the same shape."""
        known = np.sort(self._known)
        found: NDArray[np.bool_] = known[np.minimum(known.searchsorted(ids), len(known) - 1)] == ids
        return found

    def without(self, rank: int) -> "TopLogits":
        """The top logits of the row with the token at index `rank` of `ids` masked."""
        masked = self.ids[rank]
        share = exp(min(0.0, float(self.logits[rank]) / self.temperature - self.log_sum))
        rest = copy(self)
        rest.ids = np.concatenate((self.ids[:rank], self.ids[rank + 1 :]))
        rest.logits = np.concatenate((self.logits[:rank], self.logits[rank + 1 :]))
        rest.sure -= rank < self.sure
        # The absolute error of the sum stays the same, so the relative error grows as the sum shrinks.
        rest.doubt = self.doubt / (1.0 - share) if share < 1.0 else inf
        if rest.doubt < 1.0:
            rest.log_sum = self.log_sum + log1p(-share)

        def full() -> Logits:
            row = self.whole().copy()
            row[masked] = -inf
            return row

        rest.full, rest._whole = full, None
        return rest

    def likeliest(self) -> int | None:
        """The smallest id with the greatest logit; None: undecided. Raises what `check` raises."""
        self.check()
        return int(self.ids[0]) if self.sure else None

    def draw(self, temperature: float, top_k: int, top_p: float, key: gumbel.RowKey) -> int | None:
        """The token drawn under the filters (`top_k` 0 and `top_p` 1: off); None: undecided.

        Raises what `check` raises, and ValueError where top-p is on and the top logits are of another temperature.
        """
        self.check()
        if top_p < 1.0 and self.temperature != temperature:
            raise ValueError(
                f"top-p at temperature {temperature} needs top logits of that temperature, not {self.temperature}"
            )
        k = top_k if 0 < top_k < self.size else self.size
        if not self.outside or k <= self.sure:
            return winner(self.logits[:k], self.ids[:k], temperature, top_p, key)
        scaled = self.logits.astype(np.float64) / temperature
        certain, possible = len(scaled), self.size
        filtered = k < self.size or top_p < 1.0
        if filtered:
            certain, possible = self._kept(scaled, k, top_p)
            certain = min(certain, self.sure)  # of ids tied at the smallest logit, those outside may pass instead
        closed = possible <= self.sure
        among = possible if closed else len(scaled)
        scores = scaled[:among] + gumbel.gumbel(key, self.ids[:among])
        best = int(scores.argmax())
        if best >= certain:
            return None
        drawn, score = int(self.ids[best]), float(scores[best])
        if closed:
            return drawn
        least = gumbel.least_high(score - float(scaled[-1]))
        if (2**32 - least) * self.size > _MANY * 2**32:
            return None
        rivals = gumbel.ids_from(key, least, self.size)
        rivals = rivals[~self.holds(rivals)]
        if not len(rivals):
            return drawn
        scores = self.whole()[rivals].astype(np.float64) / temperature + gumbel.gumbel(key, rivals)
        if scores.max() <= score:
            return drawn
        return None if filtered else int(rivals[scores.argmax()])

    def _kept(self, scaled: NDArray[np.float64], k: int, top_p: float) -> tuple[int, int]:
        """Least and greatest number of ids that may pass the filters. Beyond len(scaled) the number is not exact."""
        if top_p >= 1.0:
            return k, k
        mass = np.cumsum(np.exp(scaled - scaled[0]))
        n = len(mass)
        if k <= n:  # the k greatest logits are known, though not which of tied ids they belong to
            least = most = top_p * float(mass[k - 1])
        else:
            total = exp(min(self.log_sum - float(scaled[0]), 700.0))  # far beyond any vocabulary, within float64
            least = float(mass[-1]) if k < self.size else max(float(mass[-1]), total * (1.0 - self.doubt))
            rest = min(self.outside, k - n) * exp(float(scaled[-1] - scaled[0]))
            most = min(float(mass[-1]) + rest, total * (1.0 + self.doubt))
            least, most = top_p * least * (1.0 - _ORDER), top_p * most * (1.0 + _ORDER)
        return int(mass.searchsorted(least)) + 1, int(mass.searchsorted(most)) + 1


Row = Logits | TopLogits  # a row of logits as an engine gives it


def top_logits_of(logits: Logits, n: int, temperature: float) -> TopLogits:
    """The `n` top logits of a whole row in host memory, as an engine would give them."""
    top = float(logits.max())
    ids = top_ids(logits, n) if isfinite(top) else np.arange(n)
    with np.errstate(invalid="ignore"):  # `check` refuses a row of NaN or infinities later
        scaled = (logits - np.float32(top)) * np.float32(1.0 / temperature)
        log_sum = top / temperature + float(np.log(np.exp(scaled).sum()))
    return TopLogits(ids.astype(np.int64), logits[ids], len(logits), temperature, log_sum, lambda: logits)
