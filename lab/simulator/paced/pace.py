"""The pace of an engine: each pass takes what it costs."""

import logging
import time
from collections.abc import Callable, Sequence

from lab.simulator.costs.cost import LinearCost
from specpair.engines.backend import Entry, Logits

_log = logging.getLogger("specpair.paced")


class PassPacer:
    """Lets passes take what they cost, and counts them."""

    def __init__(
        self,
        cost: LinearCost,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cost = cost
        self.passes = 0
        self.late_passes = 0  # passes that took longer than their cost
        self.worst_overrun = 0.0  # seconds
        self._clock, self._sleep = clock, sleep
        self._told = False

    def of(self, batch: Sequence[Entry], run: Callable[[], list[Logits]]) -> list[Logits]:
        """Call `run` for the pass over `batch`, and return its result when the time of the pass is over."""
        began = self._clock()
        logits = run()
        left = self.cost.of(batch) - (self._clock() - began)
        self.passes += 1
        if left >= 0:
            self._sleep(left)
        else:
            self.late_passes += 1
            self.worst_overrun = max(self.worst_overrun, -left)
        return logits

    def tell(self) -> None:
        """Log, once, how many passes took longer than their cost, if any did."""
        if self.late_passes and not self._told:
            _log.warning(
                "%d of %d passes took longer than they cost, at worst by %.2f ms",
                self.late_passes,
                self.passes,
                1e3 * self.worst_overrun,
            )
        self._told = True
