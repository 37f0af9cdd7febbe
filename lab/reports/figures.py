"""Figures of matplotlib, written as PNG."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from drafter_client.errors import DrafterError
from specpair.extras import installing


class NoPicture(DrafterError):
    """A plot cannot be drawn or written."""


def new_figure(title: str, width: float, height: float, missing: Callable[[str], Exception] = NoPicture) -> Any:
    """A Figure of matplotlib, of so many inches. Raises `missing` with a message, if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing(f"PNGs need matplotlib: {installing('plots')}") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=10, parse_math=False)
    return figure


def save(figure: Any, path: Path, failed: Callable[[str], Exception] = NoPicture) -> None:
    """Write a figure as PNG. Raises `failed` with a message, if the file cannot be written."""
    try:
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise failed(f"the picture {path} cannot be written: {error.strerror or error}") from None
