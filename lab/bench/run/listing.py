"""The list of cases."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lab.bench.cases.reading import LoadedCase


def show_cases(cases: Iterable[LoadedCase], console: Console) -> None:
    """Print what each case asks."""
    grid = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("case", "group", "requests", "at once", "in", "out", "what it is"):
        right = name in ("requests", "at once", "in", "out")
        grid.add_column(name, justify="right" if right else "left", no_wrap=name in ("case", "group"))
    for loaded in cases:
        case = loaded.case
        grid.add_row(
            case.name,
            case.group,
            str(case.all_requests),
            "all" if case.most_at_once is None else str(case.most_at_once),
            str(case.input_tokens or ""),
            str(case.output_tokens),
            case.description,
        )
    console.print(grid)
