"""Reading a trace: what was written is read back, and other files are refused with file and line."""

import json
from pathlib import Path

import pytest

from drafter_client.errors import TraceError
from drafter_client.statistics import Stats
from drafter_client.trace.writer import RUNS, TraceFolder
from lab.report.reader import read_run
from tests.lab.report.folders import DETAIL, write


def _refused(folder: Path) -> str:
    with pytest.raises(TraceError) as raised:
        read_run(folder)
    return str(raised.value).replace(f"{folder}", "DIR")


def test_written_run_is_read_back(tmp_path: Path) -> None:
    write(tmp_path)
    run = read_run(tmp_path, 1)
    assert (run.of, run.metrics["model"], run.metrics["accepted"], run.metrics["seed"]) == (1, "big", 4, None)
    assert [(row["k"], row["accepted"], row["arrived_ms"]) for row in run.rounds] == [
        (3, 3, 120.0),
        (3, 1, 200.0),
        (2, None, None),
    ]
    assert len(run.tokens) == 8
    assert [each.arrived_ms for each in run.detail.prefills] == [40.0]
    assert [each.began_ms for each in run.detail.steps] == [40.0, 120.0]


def test_missing_run_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(TraceError, match=r"there is no run 3 in .*runs\.csv: it has 1$"):
        read_run(tmp_path, 3)


def test_default_is_the_last_run_with_drafts(tmp_path: Path) -> None:
    write(tmp_path)
    with TraceFolder(tmp_path).run(Stats(mode="target")):  # as --baseline does
        pass
    assert [read_run(tmp_path, number).metrics["run"] for number in (None, 1, 2)] == [1, 1, 2]


def test_folder_without_runs_is_refused(tmp_path: Path) -> None:
    TraceFolder(tmp_path)
    assert _refused(tmp_path) == "no run has been written to DIR yet: give --profile DIR to a run"


@pytest.mark.parametrize(
    ("name", "line", "text", "message"),
    [
        ("runs.csv", 1, "a,b", "line 1: these are not the columns that this version writes"),
        ("runs.csv", 2, "one" + "," * (len(RUNS.columns) - 1), "line 2: run is 'one', not a whole number"),
        ("rounds.csv", 4, "1" + "," * 18, "line 4: round is missing"),
        ("tokens.csv", 9, "1,2,3,free,0,1e99", "line 9: committed_ms is '1e99', not a number of at most 2^53 in size"),
        ("tokens.csv", 2, '1,2,3,"free', "line 9: unexpected end of data"),
    ],
)
def test_malformed_table_is_refused_with_file_and_line(
    tmp_path: Path, name: str, line: int, text: str, message: str
) -> None:
    write(tmp_path)
    lines = (tmp_path / name).read_text().splitlines()
    lines[line - 1] = text
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    assert _refused(tmp_path) == f"DIR/{name}, {message}: is it a trace?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":\n,}', "line 2: Expecting value"),
        ("[]", "line 1: Input should be a valid dictionary or instance of RunDetail"),
        ("[" * 100_000, "line 1: a number is too long, or a list nested too deeply"),
        (
            json.dumps({**DETAIL, "steps": [*DETAIL["steps"], {"began_ms": 1}]}),  # type: ignore[misc]
            "line 1: steps.2.ended_ms: Field required",
        ),
        (
            json.dumps({**DETAIL, "self_continuation_passes": [{"forward_ms": float("nan"), "arrived_ms": True}]}),
            "line 1: self_continuation_passes.0.forward_ms: Input should be a finite number",
        ),
    ],
)
def test_malformed_json_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path)
    (tmp_path / "run-1.json").write_text(text)
    assert _refused(tmp_path) == f"DIR/run-1.json, {message}: is it a trace?"


def test_object_of_another_version_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "run-1.json").write_text(json.dumps({**DETAIL, "schema": 2}))
    assert _refused(tmp_path) == "DIR/run-1.json: another version wrote it: its schema is 2, this version reads 1"


@pytest.mark.parametrize(("part", "entries"), [("text", 8), ("rounds", 3)])
def test_object_that_does_not_fit_the_tables_is_refused(tmp_path: Path, part: str, entries: int) -> None:
    write(tmp_path)
    (tmp_path / "run-1.json").write_text(json.dumps({**DETAIL, part: [{"text": "a", "rounds": {}}[part]]}))
    assert _refused(tmp_path) == f"DIR/run-1.json: {part} has 1 entries, and the tables have {entries}"
