"""Draws the pictures of docs/simulator-questions.md from what `python -m simulator search … --csv FILE` wrote.

One panel for each measure, with 95 % intervals: bars by the search's first column, or lines of it over `--across`.

python -m scripts.question_pictures laptops.csv --measures tpot_p95_ms ttft_p95_ms --output docs/pictures/laptops.png
"""

import argparse
import csv
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.harness.report import plot
from simulator.results.measures import MEASURES
from simulator.search.pareto import heading

# Okabe and Ito's colours, which the colour-blind can tell apart; markers tell them apart without colours.
_STYLES = ("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#000000", "v"), ("#e69f00", "P")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--measures", nargs="+", required=True, choices=[*MEASURES])
    parser.add_argument("--across", help="a column of numbers; the others are told apart by lines")
    parser.add_argument("--unit", default="", help="what is across, with its unit")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with options.file.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    by = next(name for name in rows[0] if name not in ("candidate", options.across))
    with plot(options.output, columns=len(options.measures)) as (panels,):
        for axes, measure in zip(panels, options.measures, strict=True):
            if options.across is None:
                _bars(axes, rows, by, measure)
            else:
                _lines(axes, rows, by, measure, options.across)
                axes.set(xlabel=options.unit or options.across, ylabel=heading(MEASURES[measure]))


def _bars(axes: Any, rows: list[dict[str, str]], by: str, measure: str) -> None:
    means, halves = zip(*(_estimate(row, measure) for row in rows), strict=True)
    axes.barh([row[by] for row in rows], means, xerr=halves, color=_STYLES[0][0], capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel=heading(MEASURES[measure]), xlim=(0, 1.15 * max(means)))


def _lines(axes: Any, rows: list[dict[str, str]], by: str, measure: str, across: str) -> None:
    for name, (colour, marker) in zip(dict.fromkeys(row[by] for row in rows), cycle(_STYLES), strict=False):
        mine = [row for row in rows if row[by] == name]
        means, _ = zip(*(_estimate(row, measure) for row in mine), strict=True)
        axes.plot([float(row[across]) for row in mine], means, color=colour, marker=marker, label=name)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)


def _estimate(row: dict[str, str], measure: str) -> tuple[float, float]:
    """The mean, and half its interval."""
    mean, high = row[measure], row[f"{measure}_high"]
    return float(mean or "nan"), float(high) - float(mean) if high else 0.0


if __name__ == "__main__":
    main()
