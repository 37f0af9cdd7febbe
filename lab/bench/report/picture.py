"""The figures of a run as a PNG. Needs matplotlib."""

from pathlib import Path
from typing import Any

from lab.bench.report import sentences
from lab.bench.statistics import measures
from lab.bench.statistics.analysis import Analysis
from lab.reports.figures import new_figure, save

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")  # Okabe and Ito's
_MARKS = ("o", "s", "^", "D", "v", "P")
_CHARTED = (measures.SPEED, measures.TTFT, measures.ITL)


def draw(analysis: Analysis, path: Path) -> None:
    """Write the PNG: tokens/s, TTFT and ITL of each side in each case, with the middle half. Raises NoPicture."""
    cases = [case for case in analysis.run.cases if analysis.summaries_of(case)]
    rows = len(cases) * (len(analysis.run.sides) + 1)
    figure = new_figure(sentences.title(analysis), 13, max(3.0, 1.5 + 0.2 * rows))
    for axes, measure in zip(figure.subplots(1, len(_CHARTED), sharey=True), _CHARTED, strict=True):
        _plot(axes, analysis, measure)
    save(figure, path)


def _plot(axes: Any, analysis: Analysis, measure: measures.Measure) -> None:
    names = [side.name for side in analysis.run.sides]
    cases = [case for case in analysis.run.cases if analysis.summaries_of(case)]
    height = len(names) + 1
    for number, case in enumerate(cases):
        for each in analysis.summaries_of(case):
            found = each.distributions.get(measure.key)
            if found is None:
                continue
            side = names.index(each.side)
            y, colour = number * height + side, _COLOURS[side % len(_COLOURS)]
            axes.hlines([y], [found.p25], [found.p75], colors=colour, linewidth=4, alpha=0.4)
            label = each.side if number == 0 else None
            axes.scatter([found.p50], [y], color=colour, marker=_MARKS[side % len(_MARKS)], label=label, zorder=3)
    axes.set_yticks([number * height + (height - 2) / 2 for number in range(len(cases))], [case.name for case in cases])
    axes.set_ylim(len(cases) * height - 0.5, -1)
    axes.set_xlim(left=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set(title=f"{measure.name}: median, middle half", xlabel=measure.unit)
    if measure is _CHARTED[0] and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
