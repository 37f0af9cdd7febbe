"""The head of a row of logits: its greatest few and the mass of all, for engines that keep the row on the device.

A row of 152,000 logits is 608 KB to fetch. Nearly every token is decided by its greatest thousand and the sum over
all; for one that is not, `whole` fetches the row.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log1p

import numpy as np
from numpy.typing import NDArray

from speculation.sampling.full_logits import Logits, top_ids

_DOUBT = 1e-4  # of a sum over a vocabulary in float32, relative; far above what adding rounds
_DOUBT_OF_TERMS = 1e-6  # more of it, per unit of the greatest scaled logit: the device scales and adds in float32


@dataclass(slots=True, eq=False)
class TopLogits:
    """The greatest logits of one row, ordered by logit descending, then id ascending, whatever order they come in.

    `ids`          their ids, each once
    `logits`       as they stand in the row: neither scaled nor shifted
    `size`         how many ids the row has
    `temperature`  at which `log_sum` was taken: `Sampling.softmax_temperature`
    `log_sum`      log of the sum of exp(logit / temperature) over the whole row; float32 precision suffices
    `full`         fetches the whole row, shape (size,), float32; called once at most, and only before the next pass

    Which of several ids tied at the smallest logit are in is for the device to choose; but one id alone is the
    smallest of those with the greatest logit, as `argmax` has it. NaN may stand in a head: whoever decides
    something by it finds it. Raises ValueError for shapes that are not as said and a temperature that is not positive.
    """

    ids: NDArray[np.int64]
    logits: Logits
    size: int
    temperature: float
    log_sum: float
    full: Callable[[], Logits]
    sure: int = field(init=False)  # so many ids come first in the whole row, too, and in this order
    outside: int = field(init=False)  # ids that are not in the head and may be chosen
    doubt: float = field(init=False)  # relative error that the sum may have; from 1 on it says nothing
    _known: NDArray[np.int64] = field(init=False)  # ids that are not outside
    _whole: Logits | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        ids, logits = np.asarray(self.ids, np.int64), np.asarray(self.logits, np.float32)
        if ids.ndim != 1 or ids.shape != logits.shape or not 1 <= len(ids) <= self.size:
            raise ValueError(f"a head of ids {ids.shape} and logits {logits.shape} for {self.size} ids")
        if not self.temperature > 0.0:
            raise ValueError(f"a head made at temperature {self.temperature}: it is 1 where a session is greedy")
        self.log_sum = float(self.log_sum)  # engines give scalars of their own
        order = np.lexsort((ids, -logits))  # NaN comes last
        self.ids, self.logits = ids[order], logits[order]
        self._known = self.ids
        self.outside = self.size - len(ids)
        least = self.logits[-1]
        if least == -inf:  # nothing outside can be chosen, nor can these
            finite = int(np.count_nonzero(self.logits > -inf))
            self.ids, self.logits, self.outside = self.ids[:finite], self.logits[:finite], 0
        if self.outside and len(ids) > 1:
            self.sure = int(np.count_nonzero(self.logits > least))
        else:
            self.sure = len(self.ids)
        self.doubt = _DOUBT + _DOUBT_OF_TERMS * abs(self.log_sum)

    def check(self) -> None:
        """Raises ValueError where the row holds a NaN or no finite value."""
        if not len(self.ids) or not all(map(isfinite, (self.log_sum, self.logits[0], self.logits[-1]))):
            raise ValueError("logits without a finite maximum: the engine returned NaN or infinity")

    def whole(self) -> Logits:
        """The whole row, which may be written to."""
        if self._whole is None:
            row = np.asarray(self.full(), np.float32)
            if row.shape != (self.size,):
                raise ValueError(f"a row of shape {row.shape} behind a head of {self.size} ids")
            self._whole = row if row.flags.writeable else row.copy()
        return self._whole

    def holds(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` are not outside."""
        known = np.sort(self._known)
        found: NDArray[np.bool_] = known[np.minimum(known.searchsorted(ids), len(known) - 1)] == ids
        return found

    def without(self, rank: int) -> "TopLogits":
        """What the head would be were the token at `rank` masked in the row."""
        masked = self.ids[rank]
        share = exp(min(0.0, float(self.logits[rank]) / self.temperature - self.log_sum))
        rest = copy(self)
        rest.ids = np.concatenate((self.ids[:rank], self.ids[rank + 1 :]))
        rest.logits = np.concatenate((self.logits[:rank], self.logits[rank + 1 :]))
        rest.sure -= rank < self.sure
        # The absolute error of the sum stays: the relative one grows as the sum shrinks.
        rest.doubt = self.doubt / (1.0 - share) if share < 1.0 else inf
        if rest.doubt < 1.0:
            rest.log_sum = self.log_sum + log1p(-share)

        def full() -> Logits:
            row = self.whole().copy()
            row[masked] = -inf
            return row

        rest.full, rest._whole = full, None
        return rest


def top_logits_of(logits: Logits, n: int, temperature: float) -> TopLogits:
    """The head that an engine would give of a row which is here already."""
    top = float(logits.max())
    ids = top_ids(logits, n) if isfinite(top) else np.arange(n)
    with np.errstate(invalid="ignore"):  # a row of NaN or infinities is for those who decide to refuse
        scaled = (logits - np.float32(top)) * np.float32(1.0 / temperature)
        log_sum = top / temperature + float(np.log(np.exp(scaled).sum()))
    return TopLogits(ids.astype(np.int64), logits[ids], len(logits), temperature, log_sum, lambda: logits)
