"""Milliseconds to decide one token from a row of logits, by vocabulary, filter and shape of the distribution.

Method. Synthetic logits: `text` has a Gaussian bulk of deviation 2 with 200 ids up to 14 above it, as a language model
sure of its next few candidates gives; `wide` is the bulk alone, `flat` one of deviation 0.3, where nothing can be left
out early. Each time is the median over `--passes` of the mean over 100 positions; the reference `choose_reference` over
5. At 152,000 ids also the same decision on the row's top logits (1,024, one where greedy), ordering them included, and
for how many of 500 positions they did not decide: an engine would then fetch the row, which takes time that is not
included.

    python -m lab.benchmarks.sampling [--passes 9]
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from lab.benchmarks.harness.report import Report, options_of
from specpair.speculation.sampling.sampling import Logits, Sampling, choose, choose_reference
from specpair.speculation.sampling.top_logits import TopLogits, top_logits_of

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
    options = options_of(__doc__, {"passes": 9})
    report = Report("sampling", options)
    for size in (32_000, 152_000):
        for shape, logits in _shapes(size).items():
            for name, sampling in CASES:
                fast = median(_per_row(choose, logits, sampling, 100) for _ in range(options.passes))
                slow = _per_row(choose_reference, logits, sampling, 5)
                line = f"{size:7,} ids  {shape:5}  {name:21} {fast:7.3f} ms a row   reference {slow:7.2f} ms"
                if size > 100_000:
                    on_top, fetched = _on_top_logits(logits, sampling, options.passes)
                    line += f"   top logits {on_top:7.3f} ms, row fetched for {fetched:5.1%}"
                report.line(line)
    report.save()


def _on_top_logits(logits: Logits, sampling: Sampling, passes: int) -> tuple[float, float]:
    """Milliseconds to decide on a row's top logits, and the share of 500 positions that fetch the row."""
    top = top_logits_of(logits, 1 if sampling.greedy else 1024, sampling.softmax_temperature)
    fetched = 0

    def full() -> Logits:
        nonlocal fetched
        fetched += 1
        return logits

    def on_top(_: Logits, sampling: Sampling, position: int) -> int:
        anew = TopLogits(top.ids, top.logits, top.size, top.temperature, top.log_sum, full)  # in no order yet
        return choose(anew, sampling, position)

    taken = median(_per_row(on_top, logits, sampling, 100) for _ in range(passes))
    fetched = 0
    for position in range(500):
        on_top(logits, sampling, position)
    return taken, fetched / 500


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
