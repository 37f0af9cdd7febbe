"""A capacity as a PNG. Needs matplotlib."""

import math
from pathlib import Path
from typing import Any

from drafter_client.display.comparison import new_figure, save
from lab.simulator.capacity.page import charted_measures, limit, values
from lab.simulator.capacity.trials import Trials
from lab.simulator.results.measures import SHARE, Measure
from lab.simulator.results.report.picture import NoPicture
from lab.simulator.results.report.table import captioned

_FOUND, _ASKED = "#0072b2", "#c65100"
_COLUMNS = 3


def draw(title: str, trials: Trials, path: Path) -> None:
    """Write the PNG: measures over the counts that were tried, with their intervals. Raises NoPicture."""
    measures = charted_measures(trials)
    rows = math.ceil(len(measures) / _COLUMNS)
    figure = new_figure(title, 4 * _COLUMNS, 0.6 + 2.8 * rows, NoPicture)
    panels = [*figure.subplots(rows, _COLUMNS, squeeze=False).flat]
    for axes, measure in zip(panels, measures, strict=False):
        _plot(axes, trials, measure)
    for axes in panels[len(measures) :]:
        axes.set_axis_off()
    save(figure, path, NoPicture)


def _plot(axes: Any, trials: Trials, measure: Measure) -> None:
    scale = 100.0 if measure.unit == SHARE else 1.0
    found = [trial.estimate(measure) for trial in trials.in_order]
    means = [scale * each.mean for each in found]
    reach = [[scale * each for each in side] for side in zip(*(each.reach for each in found), strict=True)]
    axes.errorbar(values(trials), means, reach, fmt="o-", color=_FOUND, markersize=4, capsize=2, clip_on=False)
    asked = limit(trials, measure)
    if asked is not None:
        axes.axhline(scale * asked, color=_ASKED, linestyle="--", linewidth=1.2)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 102 if scale == 100.0 else None)
    axes.grid(alpha=0.3)
    axes.set_title(captioned(measure), fontsize=10)
    axes.set_xlabel(trials.size.name, fontsize=9)
