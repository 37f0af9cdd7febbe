"""The top logits of a row: its greatest few logits and the mass of all, for engines that keep the row on the device.

A row of 152,000 logits is a fetch of 608 KB. The greatest thousand and the sum over all decide nearly every token. For
the others, `whole` fetches the row.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log1p

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.sampling.full_logits import Logits as Logits
from specpair.speculation.sampling.full_logits import top_ids

_DOUBT = 1e-4  # relative error bound of a float32 sum over a vocabulary, far above its rounding
_DOUBT_OF_TERMS = 1e-6  # added to `_DOUBT` per unit of |log_sum|: the device scales and adds in float32


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


Row = Logits | TopLogits  # a row of logits as an engine gives it


def top_logits_of(logits: Logits, n: int, temperature: float) -> TopLogits:
    """The `n` top logits of a whole row in host memory, as an engine would give them."""
    top = float(logits.max())
    ids = top_ids(logits, n) if isfinite(top) else np.arange(n)
    with np.errstate(invalid="ignore"):  # `check` refuses a row of NaN or infinities later
        scaled = (logits - np.float32(top)) * np.float32(1.0 / temperature)
        log_sum = top / temperature + float(np.log(np.exp(scaled).sum()))
    return TopLogits(ids.astype(np.int64), logits[ids], len(logits), temperature, log_sum, lambda: logits)
