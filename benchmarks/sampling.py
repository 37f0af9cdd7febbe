"""Milliseconds to decide one token from a row of logits, by vocabulary, filter and shape of the distribution.

Method. Synthetic logits of three shapes, since what a fast path costs depends on them: `text` has a Gaussian bulk of
deviation 2 with 200 ids standing up to 14 above it, as a language model sure of its next few candidates gives;
`wide` is the Gaussian bulk alone, `flat` one of deviation 0.3, where nothing can be left out early. Each figure is
the median over passes of the mean over 100 positions, temperature 0.8 unless greedy; the plain float64 reference
(`choose_reference`) stands beside it, over 5 positions. At 152,000 ids also what the same decision takes on the head
of the row (its 1,024 greatest logits, one where greedy), with putting the head in order, and how many of 500
positions the head did not decide: an engine would fetch the row then, which takes its own time and is not in the
figure; deciding on it is.

    python -m benchmarks.sampling [--passes 9]
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks.report import Report, add_save
from speculation.sampling.sampling import Logits, Sampling, choose, choose_reference
from speculation.sampling.top_logits import TopLogits, top_logits_of

CASES = (
    ("greedy", Sampling(1, 0.0)),
    ("full", Sampling(1, 0.8)),
    ("full at 0.7", Sampling(1, 0.7)),
    ("full at 1.0", Sampling(1, 1.0)),
    ("top-k 40, top-p 0.95", Sampling(1, 0.8, 40, 0.95)),
    ("top-k 1000", Sampling(1, 0.8, 1000)),
    ("top-p 0.95", Sampling(1, 0.8, 0, 0.95)),
    ("top-p 0.5", Sampling(1, 0.8, 0, 0.5)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=9)
    add_save(parser)
    options = parser.parse_args()
    report = Report("sampling", options)
    for size in (32_000, 152_000):
        for shape, logits in _shapes(size).items():
            for name, sampling in CASES:
                fast = median(_per_row(choose, logits, sampling, 100) for _ in range(options.passes))
                slow = _per_row(choose_reference, logits, sampling, 5)
                line = f"{size:7,} ids  {shape:5}  {name:21} {fast:7.3f} ms a row   reference {slow:7.2f} ms"
                if size > 100_000:
                    device = Device(logits, sampling)
                    of_head = median(_per_row(device.choose, logits, sampling, 100) for _ in range(options.passes))
                    line += f"   head {of_head:7.3f} ms, row fetched for {device.fetched_for(500):5.1%}"
                report.line(line)
    report.save()


class Device:
    """Shows the head of one row, ever anew."""

    def __init__(self, logits: Logits, sampling: Sampling) -> None:
        self._logits, self._sampling, self._fetched = logits, sampling, 0
        self._head = top_logits_of(logits, 1 if sampling.greedy else 1024, sampling.softmax_temperature)

    def choose(self, logits: Logits, sampling: Sampling, position: int) -> int:
        """`choose` on the head in place of `logits`."""
        head = self._head
        return choose(
            TopLogits(head.ids, head.logits, head.size, head.temperature, head.log_sum, self._full), sampling, position
        )

    def fetched_for(self, positions: int) -> float:
        """The share of positions that the whole row is asked for."""
        self._fetched = 0
        for position in range(positions):
            self.choose(self._logits, self._sampling, position)
        return self._fetched / positions

    def _full(self) -> Logits:
        self._fetched += 1
        return self._logits


def _shapes(size: int) -> dict[str, Logits]:
    random = np.random.default_rng(0)
    bulk = random.standard_normal(size).astype(np.float32)
    text = 2.0 * bulk
    text[random.choice(size, 200, replace=False)] += np.linspace(5, 14, 200, dtype=np.float32)
    return {"text": text.astype(np.float32), "wide": 2 * bulk, "flat": np.float32(0.3) * bulk}


def _per_row(
    decide: Callable[[Logits, Sampling, int], int], logits: Logits, sampling: Sampling, positions: int
) -> float:
    began = time.perf_counter()
    for position in range(positions):
        decide(logits, sampling, position)
    return 1e3 * (time.perf_counter() - began) / positions


if __name__ == "__main__":
    main()
