"""Draws the pictures of docs/simulator-questions.md from what `specpair simulator search … --csv FILE` wrote.

One panel for each measure: bars by the search's first column, or lines of it over `--across`. The intervals are 95 %:
of the means, or with `--paired` of the differences from the best, in which the load that all share drops out.

python -m lab.pictures.questions laptops.csv --measures tpot_p95_ms ttft_p95_ms --output docs/pictures/laptops.png
"""

import argparse
import csv
import math
from itertools import cycle
from pathlib import Path
from typing import Any

from lab.benchmarks.harness.report import plot
from lab.simulator.results.measures import MEASURES, SHARE

# Okabe and Ito's colours, which the colour-blind can tell apart; markers tell them apart without colours.
_STYLES = ("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#000000", "v"), ("#e69f00", "P")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--measures", nargs="+", required=True, choices=[*MEASURES])
    parser.add_argument("--across", help="a column of numbers; the others are told apart by lines")
    parser.add_argument("--unit", default="", help="what is across, with its unit")
    parser.add_argument(
        "--paired", action="store_true", help="intervals of the differences from the best, of objectives"
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with options.file.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    lacks = [each for each in options.measures if options.paired and f"{each}_from_best" not in rows[0]]
    if lacks:
        parser.error(f"--paired: {', '.join(lacks)} was no objective of the search, so there are no differences of it")
    by = next(name for name in rows[0] if name not in ("candidate", options.across))
    with plot(options.output, columns=len(options.measures)) as (panels,):
        for axes, measure in zip(panels, options.measures, strict=True):
            if options.across is None:
                _bars(axes, rows, by, measure, options.paired)
            else:
                _lines(axes, rows, by, measure, options.across)
                axes.set(xlabel=options.unit or options.across, ylabel=MEASURES[measure].caption)
        if options.across is None:
            for axes in panels[1:]:
                axes.set_yticklabels([])


def _bars(axes: Any, rows: list[dict[str, str]], by: str, measure: str, paired: bool) -> None:
    found = [_estimate(row, measure, paired) for row in rows]
    means, *reach = zip(*found, strict=True)
    axes.barh([row[by] for row in rows], means, xerr=reach, color=_STYLES[0][0], capsize=3)
    axes.invert_yaxis()
    end = max(mean + above for mean, _, above in found)
    axes.set(xlabel=MEASURES[measure].caption, xlim=(0, min(1.05 * end, 101 if _is_share(measure) else math.inf)))


def _lines(axes: Any, rows: list[dict[str, str]], by: str, measure: str, across: str) -> None:
    for name, (colour, marker) in zip(dict.fromkeys(row[by] for row in rows), cycle(_STYLES), strict=False):
        mine = [row for row in rows if row[by] == name]
        means, *reach = zip(*(_estimate(row, measure) for row in mine), strict=True)
        at = [float(row[across]) for row in mine]
        axes.errorbar(at, means, reach, color=colour, marker=marker, markersize=5, elinewidth=0.8, label=name)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)


def _estimate(row: dict[str, str], measure: str, paired: bool = False) -> tuple[float, float, float]:
    """The mean, and how far its interval goes down and up. With `paired`, that of the difference from the best."""
    scale = 100.0 if _is_share(measure) else 1.0
    of = f"{measure}_from_best" if paired else measure
    mean, middle, low, high = (float(row[key] or "nan") for key in (measure, of, f"{of}_low", f"{of}_high"))
    down, up = (0.0 if math.isnan(each) else scale * each for each in (middle - low, high - middle))
    return scale * mean, down, up


def _is_share(measure: str) -> bool:
    return MEASURES[measure].unit == SHARE


if __name__ == "__main__":
    main()
