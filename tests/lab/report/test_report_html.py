"""`drafter report --html` on the command line."""

from pathlib import Path

import pytest

from drafter_client.statistics import Stats
from drafter_client.trace.writer import TraceFolder
from tests.drafter_client.cli.command_line import Command
from tests.lab.report.traces import data_of, write_rounds


def test_all_runs_or_one_go_into_a_file(drafter: Command, tmp_path: Path) -> None:
    write_rounds(tmp_path, 3)
    with TraceFolder(tmp_path).run(Stats(mode="target")):
        pass
    there = tmp_path / "report.html"
    there.write_text("an older one")
    ran = drafter("report", f"{tmp_path}", "--html")
    assert (ran.status, ran.err) == (0, f"drafter: written to {there}\n")
    assert ran.out.startswith("run 1, one of 2") and not list(tmp_path.glob("*.png"))
    assert [run["run"] for run in data_of(there.read_text(encoding="utf-8"))["runs"]] == [1, 2]

    ran = drafter("report", f"{tmp_path}", "--html", "--run", "2")
    assert (ran.status, ran.err) == (0, f"drafter: written to {tmp_path / 'report-2.html'}\n")

    named = tmp_path / "named.html"
    ran = drafter("report", f"{tmp_path}", "--html", f"{named}", "--no-text")
    assert (ran.status, data_of(named.read_text(encoding="utf-8"))["text"]) == (0, False)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")], "nothing is left behind"


@pytest.mark.parametrize(
    ("file", "reason"), [("no/page.html", "No such file or directory"), ("folder", "Is a directory")]
)
def test_file_that_cannot_be_written_is_refused(drafter: Command, tmp_path: Path, file: str, reason: str) -> None:
    write_rounds(tmp_path, 1)
    (tmp_path / "folder").mkdir()
    before = {*tmp_path.rglob("*")}
    ran = drafter("report", f"{tmp_path}", "--html", f"{tmp_path / file}")
    assert (ran.status, ran.err) == (1, f"drafter: the page {tmp_path / file} cannot be written: {reason}\n")
    assert {*tmp_path.rglob("*")} == before


def test_broken_trace_leaves_the_file_as_it_was(drafter: Command, tmp_path: Path) -> None:
    write_rounds(tmp_path, 3)
    (tmp_path / "report.html").write_text("an older one")
    with (tmp_path / "tokens.csv").open("a") as table:
        table.write("1,2\n")
    ran = drafter("report", f"{tmp_path}", "--html")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"drafter: {tmp_path / 'tokens.csv'}, line 12: it has 2 cells, not 6: is it a trace?\n"
    assert (tmp_path / "report.html").read_text() == "an older one"


def test_leaving_the_text_out_is_about_the_file(drafter: Command, tmp_path: Path) -> None:
    ran = drafter("report", f"{tmp_path}", "--no-text")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("drafter: --no-text: is about the HTML file, ask for that with --html\n")
