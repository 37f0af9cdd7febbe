"""Runs side by side as tables and as rows of a file. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from lab.simulator.comparison.differences import Difference, are_paired, differences, unlike_keys
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.report.table import difference_told, headed, told
from lab.simulator.results.summary import Summary
from specpair.command_line.table import NOTHING, Table, harmless
from specpair.counted import counted

_WIDEST = 40  # characters of a key's value


def measures(runs: Sequence[Summary]) -> Table:
    """A row for each measure: what the first run has; of each other what it has, its difference, and what that is."""
    first, *others = runs
    found = [differences(first, each) for each in others]
    headings = ["measure", first.name]
    for each in others:
        headings += [each.name, f"{each.name} - {first.name}", ""]
    rows = []
    for name, measure in MEASURES.items():
        those = [each.get(name) for each in found]
        base = next((each.base for each in those if each is not None), None)
        if base is not None:
            rows.append((headed(measure), told(measure, base), *(cell for each in those for cell in _cells(each))))
    return Table(tuple(headings), tuple(rows))


def keys(runs: Sequence[Summary]) -> Table:
    """A row for each key of the files that is not the same in all runs."""
    rows = ((key, *map(_short, values)) for key, values in unlike_keys(runs).items())
    return Table(("key", *(each.name for each in runs)), tuple(rows))


def said(runs: Sequence[Summary]) -> list[str]:
    """How the runs were compared, in sentences."""
    first, *others = runs
    found = []
    for each in others:
        how = (
            "pair by pair, since their seeds are the same"
            if are_paired(first, each)
            else "by Welch's approximation, since their seeds are not the same"
        )
        counts = " and ".join(counted(len(run.replications), "replication") for run in (first, each))
        found.append(f"{each.name} is compared with {first.name} {how}: {counts}.")
    if any(len(each.replications) < 2 for each in runs):
        found.append("A single replication has no interval: what differs may be noise. Give more with --replications.")
    else:
        found.append(
            "Of differences that are noise, one in twenty lies outside of its 95 % interval, and is called none."
        )
    found += [f"{each.name} was interrupted: it has figures of the time before." for each in runs if each.interrupted]
    return found


def rows(runs: Sequence[Summary]) -> Iterator[list[Any]]:
    """For a CSV file: the headings, then a row for each measure and each run but the first."""
    first, *others = runs
    ends = [f"{name}{end}" for name in ("first", "other", "difference", "relative") for end in ("", "_low", "_high")]
    yield ["measure", "unit", "first_run", "other_run", "paired", "state", *ends]
    for each in others:
        paired = are_paired(first, each)
        for name, found in differences(first, each).items():
            figures = [
                _figure(value)
                for one in (found.base, found.found, found.gap, found.relative)
                for value in (one.mean, one.low, one.high)
            ]
            names = map(harmless, (first.name, each.name))
            yield [name, found.measure.unit, *names, paired, found.state, *figures]


def _cells(found: Difference | None) -> tuple[str, str, str]:
    """What a run has, by how much that is more, and what it is."""
    if found is None:
        return NOTHING, NOTHING, ""
    return told(found.measure, found.found), _gap(found), found.state


def _gap(found: Difference) -> str:
    text, relative = difference_told(found.measure, found.gap), found.relative.mean
    return text if relative != relative else f"{text} ({100 * relative:+.1f} %)"


def _short(value: str) -> str:
    return value if len(value) <= _WIDEST else f"{value[: _WIDEST - 1]}…"


def _figure(value: float | None) -> str:
    return "" if value is None or value != value else repr(value)
