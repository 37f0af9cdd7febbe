"""A run as a PNG. Needs matplotlib."""

import math
from pathlib import Path
from typing import Any

from simulator.results.measures import MEASURES, SHARE, Measure
from simulator.results.report.table import captioned
from simulator.results.summary import Summary
from specpair.reports.picture import new_figure, save

_DRAWN = ("throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "queue_depth", "occupancy", "utilisation")
_COLOUR = "#0072b2"


class NoPicture(Exception):
    """A picture cannot be drawn. The message says why."""


def draw(run: Summary, path: Path) -> None:
    """Write the PNG: measures over time, of each replication. Raises NoPicture."""
    figure = new_figure(f"simulation: {run.name}", 12, 6, NoPicture)
    for axes, name in zip(figure.subplots(2, 3, sharex=True).flat, _DRAWN, strict=True):
        _plot(axes, run, MEASURES[name])
    save(figure, path, NoPicture)


def _plot(axes: Any, run: Summary, measure: Measure) -> None:
    several = run.series(measure.name)
    scale = 100.0 if measure.unit == SHARE else 1.0
    seconds = run.configuration["sim_time_ms"] / 1e3
    for values in several:
        at = [(number + 0.5) * seconds / len(values) for number in range(len(values))]
        shown = [scale * value if math.isfinite(value) else math.nan for value in values]
        axes.plot(at, shown, color=_COLOUR, alpha=max(0.25, 1 / len(several)), linewidth=1.4)
    axes.axvspan(0, run.configuration["burn_in_ms"] / 1e3, color="#56606b", alpha=0.13, linewidth=0)
    axes.set_xlim(0, seconds)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.set_title(captioned(measure), fontsize=10)
    axes.set_xlabel("simulated seconds", fontsize=9)
