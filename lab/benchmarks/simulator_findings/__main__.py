"""What DSD-Sim has found, repeated and explained: steps, routers over unlike verifiers, and the draft length.

`steps`: throughput over the number of drafters, 1 to 100, with a batching window of 10 ms and drafts of 4. `routers`:
three and nine unlike verifiers. `lengths`: fixed and adaptive draft lengths. Intervals are of 95 %, by runs that differ
in chance alone. Chance has fixed seeds: the figures are the same on each run.

python -m lab.benchmarks.simulator_findings [--parts steps routers lengths] [--seconds 20] [--output 200] [--save]
"""

from typing import Any

from lab.benchmarks.harness.report import RESULTS, Report, options_of, plot
from lab.benchmarks.simulator_findings.lengths import LENGTHS, lengths
from lab.benchmarks.simulator_findings.routers import routers
from lab.benchmarks.simulator_findings.steps import steps

PARTS = ["steps", "routers", "lengths"]
FLAGS = {"parts": {"default": PARTS, "choices": PARTS}, "seconds": 20.0, "output": 200}
_PICTURE = RESULTS.parents[1] / "docs" / "pictures" / "simulator-findings.png"


def main() -> None:
    options = options_of(__doc__, FLAGS, "matplotlib")
    report = Report("simulator_findings", options)
    found: dict[str, Any] = {}
    if "steps" in options.parts:
        found["steps"] = steps(report, options.seconds)
    if "routers" in options.parts:
        found["routers"] = routers(report, options.seconds)
    if "lengths" in options.parts:
        found["lengths"] = lengths(report, options.output)
    report.save()
    if set(found) == set(PARTS):
        _plot(_PICTURE if options.save else report.beside(".png"), found)


def _plot(path: Any, found: dict[str, Any]) -> None:
    with plot(path, columns=3) as ((over, policies, lengths_axes),):
        for name, points in found["steps"].items():
            at, tokens = zip(*points, strict=True)
            over.errorbar(at, [each.mean for each in tokens], [each.half for each in tokens], label=name, marker=".")
        over.set(title="Accepted tokens/s over drafters", xlabel="drafters")
        over.legend(fontsize=6)
        rates = found["routers"]["three, one text a pass"]
        policies.barh(list(rates), list(rates.values()))
        policies.set(title="Three unlike verifiers", xlabel="texts/s")
        policies.tick_params(axis="y", labelsize=6)
        names = [*LENGTHS, "as shipped"]
        for (clients, rtt, agreement), rates in found["lengths"].items():
            if agreement == 0.85:
                label = f"{clients} texts, {1e3 * rtt:.0f} ms"
                lengths_axes.plot(names, [rates[each] for each in names], marker=".", label=label)
        lengths_axes.set(title="Draft lengths, agreement 0.85", ylabel="tokens/s of a text", ylim=0)
        lengths_axes.tick_params(axis="x", rotation=60, labelsize=6)
        lengths_axes.legend(fontsize=6, ncols=2, loc="lower left")


if __name__ == "__main__":
    main()
