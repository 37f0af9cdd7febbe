"""A run as a PNG. Needs matplotlib."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drafter_client.display.comparison import new_figure, save
from lab.reports.style import LIGHT
from lab.simulator.results.measures import MEASURES, SHARE, Measure
from lab.simulator.results.report.lanes import FILLS
from lab.simulator.results.report.table import OVER_TIME, captioned
from lab.simulator.results.requests import MS
from lab.simulator.results.summary import Summary
from lab.simulator.results.timelines import Shown
from lab.simulator.virtual.timeline import Lane, What
from specpair.protocol.terminal_text import one_line

_COLOUR, _GREY = "#0072b2", "#aab1b9"


class NoPicture(Exception):
    """A picture cannot be drawn. The message says why."""


def draw(run: Summary, path: Path) -> None:
    """Write the PNG: measures over time, of each replication. Raises NoPicture."""
    figure = new_figure(f"simulation: {run.name}", 15, 6, NoPicture)
    for axes, name in zip(figure.subplots(2, 4, sharex=True).flat, OVER_TIME, strict=True):
        _plot(axes, run, MEASURES[name])
    save(figure, path, NoPicture)


def draw_requests(several: Sequence[Shown], path: Path) -> None:
    """Write the PNG of single requests: bars of what drafts above those of the verifier, and messages between them.

    Raises NoPicture.
    """
    figure = new_figure("single requests", 12, 1.6 * len(several), NoPicture)
    for axes, shown in zip(figure.subplots(len(several), 1, squeeze=False).flat, several, strict=True):
        _lanes(axes, shown)
    save(figure, path, NoPicture)


def _lanes(axes: Any, shown: Shown) -> None:
    sent = shown.record.sent
    for what, fill in FILLS.items():
        spans = [((each.begin - sent) / MS, (each.end - each.begin) / MS) for each in shown.spans if each.what is what]
        low = 3 if what.lane is Lane.DRAFTER else 0
        axes.broken_barh(spans, (low, 1), facecolor=_GREY if fill is None else LIGHT[fill], edgecolor="white", lw=0.2)
    for each in shown.spans:
        if each.what.lane is Lane.WIRE:
            ends, side = ((1, 3), 1) if each.what is What.DOWN else ((3, 1), 0)
            axes.plot([(each.begin - sent) / MS, (each.end - sent) / MS], ends, color=LIGHT[side], lw=0.5, alpha=0.7)
    axes.set_yticks([0.5, 2, 3.5], [each.value for each in reversed(Lane)])
    axes.set_xlim(left=0)
    title = one_line(f"{shown.why}: conversation {shown.record.conversation}, turn {shown.record.turn}")
    axes.set_title(title, fontsize=9, loc="left", parse_math=False)
    axes.set_xlabel("ms since it was sent", fontsize=8)


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
