"""A run as a PNG. Needs matplotlib."""

import math
from pathlib import Path

from drafter_client.display.comparison import new_figure, save
from lab.simulator.configuration.keys import MS
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.page import OVER_TIME
from lab.simulator.results.summary import Summary
from specpair.protocol.terminal_text import one_line


class NoPicture(Exception):
    """A picture cannot be drawn. The message says why."""


def draw(run: Summary, path: Path) -> None:
    """Write the PNG: measures over time, of each replication. Raises NoPicture."""
    figure = new_figure(one_line(f"simulation: {run.name}"), 15, 6, NoPicture)
    seconds, burn_in = (run.configuration[key] * MS for key in ("sim_time_ms", "burn_in_ms"))
    for axes, measure in zip(
        figure.subplots(2, 4, sharex=True).flat, (MEASURES[name] for name in OVER_TIME), strict=True
    ):
        several = run.series(measure.name)
        for values in several:
            at = [(number + 0.5) * seconds / len(values) for number in range(len(values))]
            shown = [measure.scale * value if math.isfinite(value) else math.nan for value in values]
            axes.plot(at, shown, color="#0072b2", alpha=max(0.25, 1 / len(several)), linewidth=1.4)
        axes.axvspan(0, burn_in, color="#56606b", alpha=0.13, linewidth=0)
        axes.set_xlim(0, seconds)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.set_title(measure.caption, fontsize=10)
        axes.set_xlabel("simulated seconds", fontsize=9)
    save(figure, path, NoPicture)
