"""`drafter report`: the whole output in the terminal, and the HTML file."""

import json
from pathlib import Path

import pytest

from drafter_client.statistics import Stats
from drafter_client.trace.writer import TraceFolder
from lab.report import command
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.trace.folders import DETAIL, write
from tests.lab.report.traces import data_of, write_rounds

REPORT = """\
run 1, 2026-03-04 12:00:00 UTC, remote: small drafts for big
8 tokens in 200 ms, 40.0 tokens/s, TTFT 40 ms, 4 of 6 draft tokens accepted

acceptance by depth
1  100%  ████████████████████████████████████████ 2 of 2
2   50%  ████████████████████ 1 of 2
3   50%  ████████████████████ 1 of 2

timeline, 0 to 200 ms of 200 ms
drafting                  ████████                        ████████
network   ██            ██        ████                ████        ████                ████
queue                                 ████                            ████
verify      ████████████                  ████████████                    ████████████
          0                                                                         200 ms

tokens/s over time, 70 at most
          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁████████████████████████████████████████
          0                                                                         200 ms
"""


def report(*flags: str) -> int:
    return command.run(flags)


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def _printed(capsys: pytest.CaptureFixture[str]) -> str:
    return "".join(line.rstrip() + "\n" for line in capsys.readouterr().out.splitlines())


def test_report_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    assert report(f"{tmp_path}") == 0
    assert _printed(capsys) == REPORT


def test_lossy_run_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, strategy="threshold", threshold=0.25)
    assert report(f"{tmp_path}") == 0
    assert _printed(capsys).splitlines()[0].endswith("small drafts for big, lossy: threshold 0.25")


def test_report_of_a_run_that_failed_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), TraceFolder(tmp_path).run(Stats(mode="fused")):
            raise ZeroDivisionError
    assert report(f"{tmp_path}", "--run", "1") == 0
    lines = _printed(capsys).splitlines()
    assert lines[0].startswith("run 1, one of 2, 20") and "UTC, fused: a" in lines[0]
    assert "ended early: ZeroDivisionError" in " ".join(lines[1:4])
    assert "the target judged no draft token of this drafter" in lines and "no activity was recorded" in lines
    assert lines[-1] == "tokens/s over time, 0 at most"


def test_timeline_shows_the_middle_of_many_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, total_ms=4000.0)
    passes = [{"forward_ms": 50.0, "arrived_ms": 300.0 + 100.0 * at} for at in range(37)]
    (tmp_path / "run-1.json").write_text(json.dumps({**DETAIL, "self_continuation_passes": passes}))
    report(f"{tmp_path}")
    lines = _printed(capsys).splitlines()
    assert "timeline, 1550 to 2350 ms of 4000 ms" in lines
    [verify] = [line for line in lines if line.startswith("verify")]
    assert verify == "verify    " + "     ".join(["█████"] * 8)


# The HTML file.


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


def test_leaving_the_text_out_is_about_the_file(drafter: Command, tmp_path: Path) -> None:
    ran = drafter("report", f"{tmp_path}", "--no-text")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("drafter: --no-text: is about the HTML file, ask for that with --html\n")
