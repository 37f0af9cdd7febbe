"""The plot of `drafter compare`. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drafter_client.display.comparison_table import Table
from drafter_client.display.picture import new_figure, save
from drafter_client.errors import NoPicture


def draw(tables: Sequence[Table], title: str, path: Path) -> None:
    """Write a PNG with one plot for each table. Raises NoPicture if that is not possible."""
    figure = new_figure(title, 4.8 * len(tables), 1.2 + 0.32 * len(tables[0].rows), NoPicture)
    for axes, table in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True):
        _plot(axes, table)
    save(figure, path, NoPicture)


def _plot(axes: Any, table: Table) -> None:
    rows = table.rows
    positions = range(len(rows))
    colours = ["tab:green" if row.way == table.best else "tab:blue" for row in rows]
    axes.hlines(
        positions, [row.low for row in rows], [row.high for row in rows], colors=colours, linewidth=5, alpha=0.35
    )
    axes.scatter([row.rate for row in rows], positions, c=colours, zorder=3)
    for position, row in zip(positions, rows, strict=True):
        axes.annotate(f"{row.ratio:.2f}x", (row.high, position), (6, -3), textcoords="offset points", fontsize=8)
    axes.set_yticks(positions, [row.way for row in rows])
    axes.invert_yaxis()
    axes.set(
        title=table.kind,
        xlabel="tokens/s: median, quartiles, times the target",
        xlim=(0, 1.2 * max(row.high for row in rows)),
    )
