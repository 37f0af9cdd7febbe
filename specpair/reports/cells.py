"""Tables as cells of text, and figures in them."""

from dataclasses import dataclass
from typing import Any

NOTHING = "-"
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text. The first column is to the left, the others hold figures."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def figure(value: float | None) -> str:
    """A figure with three significant digits or more."""
    if value is None:
        return NOTHING
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def harmless(value: Any) -> Any:
    """A value of a CSV file. Text that a spreadsheet would run as a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value
