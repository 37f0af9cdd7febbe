"""A run as a whole: its configuration, its replications, and what they are in the mean; as files and read back."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.replications import Replication
from lab.simulator.results.student import Estimate
from lab.simulator.results.timelines import Shown
from specpair import shared_files
from specpair.command_line.table import harmless
from specpair.extras import installed_version

FORMAT = "specpair-simulation-1"
JSON, CSV = "summary.json", "summary.csv"


class BadSummary(ValueError):
    """A folder has no results of a run. The message names it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run. `configuration`: as JSON, with all defaults."""

    name: str
    version: str
    configuration: dict[str, Any]
    replications: tuple[Replication, ...]

    @property
    def drafters(self) -> int:
        """Devices that draft."""
        return sum(int(kind["count"]) for kind in self.configuration["devices"]["drafters"])

    @property
    def interrupted(self) -> bool:
        """Whether it ended before its simulated time did."""
        asked = self.configuration["replications"], self.configuration["sim_time_ms"] * 1e-3
        return (len(self.replications), min((each.seconds for each in self.replications), default=0.0)) < asked

    @property
    def timelines(self) -> Sequence[Shown]:
        """A few requests of the first replication; none, if the run was read from its file."""
        return self.replications[0].timelines if self.replications else ()

    def values(self, measure: str) -> list[float]:
        """Of each replication; not a number, where there is none."""
        return [each.measures.get(measure, math.nan) for each in self.replications]

    def estimates(self) -> dict[str, Estimate]:
        """Of the measures that have a value, in the order of MEASURES."""
        found = {name: each.estimate(self.values(name)) for name, each in MEASURES.items()}
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

    def series(self, measure: str) -> list[list[float]]:
        """A measure over time: a list for each replication."""
        return [each.series[measure] for each in self.replications]


def summary(name: str, configuration: Configuration, replications: list[Replication]) -> Summary:
    """`name`: what the run is called."""
    return Summary(name, installed_version(), configuration.model_dump(mode="json"), tuple(replications))


def write(run: Summary, folder: Path) -> None:
    """Write `summary.json` and `summary.csv`. Raises OSError."""
    for name, text in ((JSON, as_json(run)), (CSV, as_csv(run))):
        with shared_files.replacing(folder / name) as file:
            file.write(text.encode())


def as_json(run: Summary) -> str:
    """The run, with the mean of each measure, but without its timelines."""
    told = asdict(replace(run, replications=tuple(replace(each, timelines=()) for each in run.replications)))
    for each in told["replications"]:
        del each["timelines"]
    means = {
        name: {"mean": each.mean, "half": each.half, "low": each.low, "high": each.high}
        for name, each in run.estimates().items()
    }
    whole = {"format": FORMAT, **told, "measures": means}
    return json.dumps(_without_nan(whole), indent=1, ensure_ascii=False) + "\n"


def as_csv(run: Summary) -> str:
    """A line for each measure: its mean, the ends of its interval, and what each replication gave."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    numbers = [f"replication_{number + 1}" for number in range(len(run.replications))]
    writer.writerow(["measure", "unit", "mean", "low", "high", *numbers])
    for name, each in run.estimates().items():
        values = ["" if math.isnan(value) else value for value in run.values(name)]
        writer.writerow(
            [harmless(cell) for cell in (name, MEASURES[name].unit, each.mean, each.low, each.high, *values)]
        )
    return file.getvalue()


def read(folder: Path) -> Summary:
    """The run whose results are in a folder. Raises BadSummary."""
    path = folder / JSON
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise BadSummary(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise BadSummary(f"{path} has not the form {FORMAT}: it is not from this version of 'simulator run'")
    try:
        replications = tuple(Replication(**_with_nan(each)) for each in given["replications"])
        return Summary(given["name"], given["version"], given["configuration"], replications)
    except (KeyError, TypeError) as error:
        raise BadSummary(f"{path} is not whole: {error}") from None


def _without_nan(value: Any) -> Any:
    """JSON has no number that is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list | tuple) else value


def _with_nan(value: Any) -> Any:
    if value is None:
        return math.nan
    if isinstance(value, dict):
        return {key: _with_nan(each) for key, each in value.items()}
    return [_with_nan(each) for each in value] if isinstance(value, list) else value
