"""The tables of a trace: documented as they are written, and cells are read back as they were."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.trace.schema import TABLES, Column, TraceTable
from tests.paths import ROOT

DOCS = ROOT / "docs" / "traces.md"
KINDS = {str: "text", int: "whole", float: "number"}
TEXT, WHOLE, NUMBER = (Column("it", kind) for kind in (str, int, float))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.file)
def test_documented_columns_are_the_written_columns(table: TraceTable) -> None:
    section = DOCS.read_text(encoding="utf-8").partition(f"## {table.file}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    assert [(name, kind, empty) for name, kind, _, empty, _ in rows] == [
        (f"`{column.name}`", KINDS[column.kind], "" if column.needed else "may be") for column in table.columns
    ]
    assert all(meaning for *_, meaning in rows)


@given(st.none() | st.floats(-1e12, 1e12))
def test_numbers_are_read_back_to_eight_digits(value: float | None) -> None:
    read = NUMBER.value(NUMBER.cell(value))
    assert read == (None if value is None else pytest.approx(value, rel=1e-7, abs=0.0))


@given(st.text())
def test_texts_are_read_back_as_one_line(value: str) -> None:
    kept = " ".join(value.split())
    table = TraceTable("t.csv", (TEXT, WHOLE))
    lines = table.lines([{"it": value}])  # both columns are of that name
    [cells] = csv.reader(io.StringIO(lines, newline=""))
    assert lines.endswith("\n") and cells == [kept, ""]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 2**60, "7", [1], {"a": 1}, None])
def test_invalid_numbers_become_empty_cells(value: object) -> None:
    assert NUMBER.cell(value) == WHOLE.cell(value) == ""


@pytest.mark.parametrize(
    ("column", "cell", "wrong"),
    [
        (WHOLE, "2.5", "it is '2.5', not a whole number"),
        (NUMBER, "fast", "it is 'fast', not a number"),
        (NUMBER, "nan", "it is 'nan', not a number of at most 2^53 in size"),
        (NUMBER, "1e99", "it is '1e99', not a number of at most 2^53 in size"),
        (Column("it", int, needed=True), "", "it is missing"),
    ],
)
def test_malformed_cell_raises_value_error(column: Column, cell: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="it") as raised:
        column.value(cell)
    assert str(raised.value) == wrong
