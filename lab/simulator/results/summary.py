"""A run as a whole: its configuration, its replications, and what they are in the mean."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.results.measures import MEASURES, Estimate
from lab.simulator.results.replications import Replication
from specpair import shared_files
from specpair.extras import installed_version

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
        """Whether it ended before its simulated time did."""
        asked = self.configuration["replications"], self.configuration["sim_time_ms"] * MS
        return (len(self.replications), min((each.seconds for each in self.replications), default=0.0)) < asked

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

    def write(self, folder: Path) -> None:
        """Write `summary.json`. Raises OSError."""
        with shared_files.replacing(folder / "summary.json") as file:
            file.write(self.as_json().encode())

    def as_json(self) -> str:
        """The run, with the mean of each measure."""
        means = {
            name: {"mean": each.mean, "half": each.half, "low": each.low, "high": each.high}
            for name, each in self.estimates().items()
        }
        whole = {"format": _FORMAT, **asdict(self), "measures": means}
        return json.dumps(_without_nan(whole), indent=1, ensure_ascii=False) + "\n"


def _without_nan(value: Any) -> Any:
    """JSON has no number that is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list | tuple) else value
