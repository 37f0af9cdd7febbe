"""docs/readout.md explains every row of the panel and every key of the object, and no others."""

import re

from drafter_client.display.panel_rows import bars, columns, couples, lines
from drafter_client.metrics.statistics import Stats
from specpair.speculation.acceptance.token_source import TokenSource
from specpair.speculation.policy.schedule import Schedule
from tests.drafter_client.display.support import everything
from tests.paths import ROOT

DOCS = (ROOT / "docs" / "readout.md").read_text(encoding="utf-8")
MODES = ("remote", "fused", "target", "auto", "solo")


def _first_cells(section: str) -> list[str]:
    text = DOCS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|(.*)\|$", text, re.MULTILINE)
    assert all(rest.rpartition("|")[2].strip() for _, rest in rows), "each has a meaning"
    return [cell.strip("`") for cell, _ in rows[1:]]


def _labels(stats: Stats) -> set[str]:
    left, right = columns(stats)
    rows = [*left, *right, *(row for couple in couples(stats) for row in couple), *lines(stats), *bars(stats)]
    return {label for label, _ in rows}


def test_exactly_the_rows_of_the_panel_are_explained() -> None:
    explained = _first_cells("The panel")
    assert len(explained) == len(set(explained))
    assert set(explained) == set.union(*(_labels(everything(mode)) for mode in MODES)) | {"ms a token"}


def test_exactly_the_keys_of_the_object_are_explained() -> None:
    assert _first_cells("The object") == list(Stats().report(""))


def test_every_token_source_and_schedule_is_explained() -> None:
    assert _first_cells("The words") == [source.value for source in TokenSource]
    assert all(f"`{schedule.value}`" in DOCS for schedule in Schedule)
