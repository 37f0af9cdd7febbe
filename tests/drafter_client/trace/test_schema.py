"""The tables: documented as they are written, and cells that come back as what went in."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.trace.schema import ROUNDS, RUNS, TABLES, TOKENS, Column, TraceTable
from tests.paths import ROOT

DOCS = ROOT / "docs" / "profile.md"
KINDS = {str: "text", int: "whole", float: "number"}
TEXT, WHOLE, NUMBER = (Column("it", kind, "", "") for kind in (str, int, float))


def documented_rows(table: TraceTable) -> list[str]:
    return [
        f"| `{column.name}` | {KINDS[column.kind]} | {column.unit} | {'' if column.needed else 'may be'} "
        f"| {column.meaning} |"
        for column in table.columns
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.file)
def test_what_is_documented_is_what_is_written(table: TraceTable) -> None:
    section = DOCS.read_text(encoding="utf-8").partition(f"## {table.file}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    expected = documented_rows(table)
    assert rows == expected, f"in {DOCS.name}, under {table.file}:\n" + "\n".join(expected)


def test_columns_are_named_once() -> None:
    for table in TABLES:
        assert len(set(table.names)) == len(table.names)
        assert table.names[0] == "run"
    assert (len(RUNS.columns), len(ROUNDS.columns), len(TOKENS.columns)) == (36, 19, 6)


@given(st.none() | st.integers(-(2**53), 2**53))
def test_whole_numbers_come_back(value: int | None) -> None:
    assert WHOLE.value(WHOLE.cell(value)) == value


@given(st.none() | st.floats(-1e12, 1e12))
def test_numbers_come_back_to_the_eighth_digit(value: float | None) -> None:
    read = NUMBER.value(NUMBER.cell(value))
    assert read == (None if value is None else pytest.approx(value, rel=1e-7, abs=0.0))


@given(st.text())
def test_texts_come_back_as_one_line(value: str) -> None:
    kept = " ".join(value.split())
    table = TraceTable("t.csv", (TEXT, WHOLE))
    lines = table.lines([{"it": value}])  # both columns are of that name
    [cells] = csv.reader(io.StringIO(lines, newline=""))
    assert lines.endswith("\n") and cells == [kept, ""]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 2**60, "7", [1], {"a": 1}, None])
def test_what_is_no_number_is_not_known(value: object) -> None:
    assert NUMBER.cell(value) == WHOLE.cell(value) == ""


def test_cells_are_plain() -> None:
    assert [NUMBER.cell(value) for value in (-0.0, 2.5, 7, True)] == ["0", "2.5", "7", "1"]
    assert [WHOLE.cell(value) for value in (2.5, True, 3)] == ["", "1", "3"]
    assert [TEXT.cell(value) for value in ("a", 3, None)] == ["a", "", ""]


@pytest.mark.parametrize(
    ("column", "cell", "wrong"),
    [
        (WHOLE, "2.5", "it is '2.5', no whole number"),
        (NUMBER, "fast", "it is 'fast', no number"),
        (NUMBER, "nan", "it is 'nan', no number that is counted or measured"),
        (NUMBER, "1e99", "it is '1e99', no number that is counted or measured"),
        (Column("it", int, "", "", needed=True), "", "it is missing"),
    ],
)
def test_a_wrong_cell_is_said(column: Column, cell: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="it") as raised:
        column.value(cell)
    assert str(raised.value) == wrong


def test_a_row_has_all_cells() -> None:
    with pytest.raises(ValueError, match="it has 2 cells, not 6"):
        TOKENS.row(["1", "2"])
