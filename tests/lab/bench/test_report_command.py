"""`drafter bench report` and `drafter bench compare`, from records to files."""

from dataclasses import replace
from pathlib import Path

import pytest

from drafter_client.cli.program import main
from lab.bench.errors import BadRecords
from lab.bench.record_files import RECORDS, RUN, encode_record, encode_run, read_results
from lab.bench.records import Record, Results
from lab.bench.statistics.analysis import analyse
from lab.bench.statistics.merging import merged
from tests.lab.bench.runs import pair_and_target


def written(folder: Path, results: Results) -> Path:
    folder.mkdir()
    (folder / RUN).write_bytes(encode_run(results.run))
    records: list[Record] = [*results.requests, *results.stretches]
    (folder / RECORDS).write_bytes(b"".join(map(encode_record, records)))
    return folder


def test_all_outputs_are_made_again_from_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", pair_and_target())
    assert main(["bench", "report", str(folder), "--no-png"]) == 0
    out, notes = capsys.readouterr()
    assert "pair is 2.00 times target" in out.replace("\n", " ")
    assert notes == f"drafter: the report is in {folder / 'report.html'}, its figures beside it\n"
    first = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert main(["bench", "report", str(folder), "--no-png"]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == first


def test_what_cannot_be_reported_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", pair_and_target())
    assert main(["bench", "report", str(tmp_path)]) == 1
    assert "is no folder of 'drafter bench'" in capsys.readouterr().err
    assert main(["bench", "report", str(folder), "--baseline", "x"]) == 1
    assert "no side is called 'x'" in capsys.readouterr().err
    assert main(["bench", "report", str(folder), "--no-png", "--pushgateway", "here"]) == 1
    assert "'here' is no address" in capsys.readouterr().err


def test_the_picture_is_drawn_where_matplotlib_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = written(tmp_path / "run", pair_and_target())
    assert main(["bench", "report", str(folder)]) == 0
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")


def test_two_runs_are_compared_by_the_cases_that_both_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = pair_and_target()
    other = replace(results.run.cases[1], prompts_hash="other")
    changed = Results(replace(results.run, cases=(results.run.cases[0], other)), results.requests, results.stretches)
    before, after = written(tmp_path / "before", results), written(tmp_path / "after", changed)
    assert main(["bench", "compare", str(before), str(after), "--output", str(tmp_path / "out"), "--no-png"]) == 0
    out = capsys.readouterr().out
    assert "before:target" in out and "after:pair" in out and "noise" not in out
    assert (tmp_path / "out" / "report.html").is_file()


def test_merged_runs_keep_their_figures() -> None:
    results = pair_and_target()
    both = merged([("a", results), ("b", results)])
    found, alone = analyse(both), analyse(results)
    assert [each.side for each in found.summaries[:4]] == ["a:target", "a:pair", "b:target", "b:pair"]
    for number in (0, 2):
        assert found.summaries[number].values == alone.summaries[0].values
    same = found.comparison("counting", "b:target", "tokens_per_second")
    assert same is not None and same.winner is None and same.ratio == pytest.approx(1)


def test_runs_without_a_case_in_common_are_refused() -> None:
    results = pair_and_target()
    other = Results(replace(results.run, cases=()), [], [])
    with pytest.raises(BadRecords, match="no case in common"):
        merged([("a", results), ("b", other)])


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = pair_and_target()
    assert analyse(read_results(written(tmp_path / "run", results))) == analyse(results)
