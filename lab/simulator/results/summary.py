"""The summary of a run: its configuration, its replications, their means, and its tables."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.results.measures import DISTRIBUTED, MEASURES, PERCENTILES, SHARE, Estimate
from lab.simulator.results.replications import Replication
from specpair import shared_files
from specpair.command_line.table import NOTHING, Table, print_table
from specpair.extras import installed_version
from specpair.protocol.terminal_text import one_line

_FORMAT = "specpair-simulation-2"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run. `configuration`: as JSON, with all defaults."""

    name: str
    version: str
    configuration: dict[str, Any]
    replications: tuple[Replication, ...]

    @classmethod
    def of(cls, name: str, configuration: Configuration, replications: list[Replication]) -> "RunSummary":
        """`name`: what the run is called."""
        return cls(name, installed_version(), configuration.model_dump(mode="json"), tuple(replications))

    @property
    def interrupted(self) -> bool:
        """Whether replications are missing."""
        return len(self.replications) < int(self.configuration["replications"])

    def estimates(self) -> dict[str, Estimate]:
        """The estimates of measures that have a value, in the order of MEASURES."""
        found = {
            name: each.estimate([of.measures[name] for of in self.replications]) for name, each in MEASURES.items()
        }
        return {name: each for name, each in found.items() if not math.isnan(each.mean)}

    def grouped(self, kind: str) -> dict[str, dict[str, Estimate]]:
        """Measures of "tenants", "devices" or "nodes": by the name of the group, and of the measure."""
        groups: list[dict[str, dict[str, float]]] = [getattr(each, kind) for each in self.replications]
        names = sorted({name for each in groups for name in each})
        return {
            name: {
                measure: MEASURES[measure].estimate([each[name][measure] for each in groups if name in each])
                for measure in next(each[name] for each in groups if name in each)
            }
            for name in names
        }

    def write(self, folder: Path) -> None:
        """Write `summary.json`: the run, with the mean of each measure. Raises OSError."""
        means = {
            name: {"mean": each.mean, "half": each.half, "low": each.low, "high": each.high}
            for name, each in self.estimates().items()
        }
        whole = {"format": _FORMAT, **asdict(self), "measures": means}
        with shared_files.replacing(folder / "summary.json") as file:
            file.write((json.dumps(_without_nan(whole), indent=1, ensure_ascii=False) + "\n").encode())


def _without_nan(value: Any) -> Any:
    """The value without NaN, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list | tuple) else value


def times(run: RunSummary) -> Table:
    """A row for each distribution of times, a column for each percentile, in ms."""
    found = run.estimates()
    rows = []
    for name, (title, _) in DISTRIBUTED.items():
        cells = [MEASURES[key].text(found.get(key)) for key in (f"{name}_{each}_ms" for each in PERCENTILES)]
        if any(cell != NOTHING for cell in cells):
            rows.append((title, *cells))
    return Table(("ms", *PERCENTILES), tuple(rows))


def figures(run: RunSummary) -> Table:
    """A row for each other measure that has a value."""
    found = run.estimates()
    rows = (
        (each.title, each.text(found[each.name]), "" if each.unit == SHARE else each.unit)
        for each in MEASURES.values()
        if not each.statistic and each.name in found
    )
    return Table(("measure", "mean", "unit"), tuple(rows))


def grouped(run: RunSummary, kind: str, heading: str) -> Table:
    """A row for each tenant, kind of devices, or verifier, without empty columns."""
    groups = run.grouped(kind)
    measures = [
        MEASURES[name]
        for name in next(iter(groups.values()), {})
        if any(MEASURES[name].text(each[name]) != NOTHING for each in groups.values())
    ]
    rows = ((name or "-", *(each.text(values[each.name]) for each in measures)) for name, values in groups.items())
    return Table((heading, *(each.heading for each in measures)), tuple(rows))


def all_tables(run: RunSummary) -> Sequence[tuple[str, Table]]:
    """Those of a run, with their titles; empty ones, and those with one row of groups alone, are left out."""
    tables = [
        ("Times", times(run), 1),
        ("Figures", figures(run), 1),
        ("Tenants", grouped(run, "tenants", "tenant"), 2),
        ("Drafters", grouped(run, "devices", "kind"), 2),
        ("Verifiers", grouped(run, "nodes", "verifier"), 1),
    ]
    return [(title, table) for title, table, fewest in tables if len(table.rows) >= fewest]


def show(run: RunSummary, console: Console) -> None:
    """Print the tables of a run."""
    console.print(Text(one_line(f"simulation: {run.name}"), "bold"))
    for title, table in all_tables(run):
        console.print(Text(title, "dim"))
        print_table(table, console)
