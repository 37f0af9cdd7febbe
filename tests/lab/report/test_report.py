"""`drafter report`: the whole output in the terminal, and the HTML file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.statistics import Stats
from drafter_client.trace.writer import TraceFolder
from lab.report import command
from lab.report.reader import Record
from lab.report.recorded import acceptance_by_depth
from tests.drafter_client.cli.command_line import Command
from tests.lab.report.folders import write
from tests.lab.report.traces import HOSTILE, data_of, write_rounds

REPORT = """\
run 1: remote, 8 tokens, 2026-03-04 12:00:00 UTC
╭──────────────────── small drafts for big ─────────────────────╮
│ prompt            0 tokens   rounds                         0 │
│ generated         8 tokens   draft tokens                   6 │
│ ended by        max_tokens   accepted                       4 │
│ TTFT                 40 ms   acceptance rate            66.7% │
│ speed       40.00 tokens/s   mean acceptance length         - │
│ sent               0.0 KiB   received                 0.0 KiB │
│                                                               │
│ what the text waited for                                      │
│ prefill   30 ms  15%  ████                                    │
│ verify    60 ms  30%  █████████                               │
│ queue     20 ms  10%  ███                                     │
│ network   50 ms  25%  ████████                                │
│ drafting  40 ms  20%  ██████                                  │
│ other     0 ms   0%                                           │
╰───────────────────────────────────────────────────────────────╯
acceptance by depth
1  100%  ████████████████████████████████████████ 2 of 2
2   50%  ████████████████████ 1 of 2
3   50%  ████████████████████ 1 of 2
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


def test_report_of_a_run_that_failed_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), TraceFolder(tmp_path).run(Stats(mode="fused")):
            raise ZeroDivisionError
    assert report(f"{tmp_path}", "--run", "1") == 0
    first, *rest = _printed(capsys).splitlines()
    assert first.startswith("run 1, one of 2: fused, 0 tokens, 20")
    assert "ended early: ZeroDivisionError" in " ".join([first, *rest[:2]]) and "acceptance by depth" not in rest


def test_hostile_texts_stay_text_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rounds(tmp_path, 3, HOSTILE)
    assert report(f"{tmp_path}") == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown and "\\x1b" in shown


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


JUDGED = st.lists(st.integers(0, 9).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count))))


@given(JUDGED, st.integers(0, 3))
def test_acceptance_by_depth_counts_each_judged_draft_token(pairs: list[tuple[int, int]], unanswered: int) -> None:
    rows: list[Record] = [{"judged": judged, "accepted": accepted} for judged, accepted in pairs]
    no_answer: Record = {"judged": None, "accepted": None}
    depths = acceptance_by_depth([*rows, *[no_answer] * unanswered])
    assert sum(each.drafts for each in depths) == sum(judged for judged, _ in pairs)
    assert sum(each.accepted for each in depths) == sum(accepted for _, accepted in pairs)
    assert [each.depth for each in depths] == list(range(1, max((judged for judged, _ in pairs), default=0) + 1))
    assert all(0.0 <= each.share <= 1.0 and each.drafts > 0 for each in depths)
