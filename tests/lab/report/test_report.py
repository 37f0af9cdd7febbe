"""`drafter report`: the whole output in the terminal, and the HTML file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.statistics import Stats
from drafter_client.trace.writer import TraceFolder
from lab.report import command
from lab.report.reader import Record, RunDetail, RunTrace
from lab.report.recorded import acceptance_by_depth
from lab.report.terminal import Span, Track, coverage, speed_over_time, timeline
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


# Shares, lanes and rates equal those counted one by one.

NOTHING = RunDetail(prefills=[], steps=[], self_continuation_passes=[])
MS = st.just(0.0) | st.floats(1e-6, 1e5)  # a clock that counts nanoseconds gives no smaller times
SPANS = st.lists(st.builds(lambda lane, at, long: Span(lane, at, at + long), st.sampled_from(Track), MS, MS))
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


@given(MS, MS, MS, MS)
def test_lanes_of_an_exchange_fill_its_time(sent: float, rtt: float, queue: float, forward: float) -> None:
    row: Record = {"sent_ms": sent, "queue_ms": queue, "forward_ms": forward, "arrived_ms": sent + rtt}
    spans = timeline(RunTrace(1, {}, [row], [], NOTHING))
    ends = [sent, *(span.end for span in spans)]
    assert [span.begin for span in spans] == pytest.approx(ends[:-1])  # one after the other, without a gap
    assert ends[-1] == pytest.approx(sent + rtt)
    if queue + forward <= rtt:
        for lane, took in ((Track.QUEUE, queue), (Track.VERIFY, forward)):
            assert sum(span.end - span.begin for span in spans if span.lane is lane) == pytest.approx(took, abs=1e-6)


@given(SPANS, MS, st.floats(0.001, 1e5), st.integers(1, 90))
def test_coverage_equals_sampled_activity(spans: list[Span], begin: float, length: float, cells: int) -> None:
    end = begin + length
    for lane in Track:
        shares = coverage(spans, lane, begin, end, cells)
        assert len(shares) == cells and all(0.0 <= share <= 1.0 for share in shares)
        # Compared with time sampled in the middle of thin slices: each edge of a span makes at most one of them wrong.
        inside = [span for span in spans if span.lane is lane]
        slices = 400
        active = sum(
            any(span.begin <= begin + length * (at + 0.5) / slices < span.end for span in inside)
            for at in range(slices)
        )
        assert sum(shares) / cells == pytest.approx(active / slices, abs=(2 * len(inside) + 1e-6) / slices)


@given(st.lists(MS, max_size=200), MS, st.integers(1, 40))
def test_rates_count_each_token_once(times: list[float], total: float, most: int) -> None:
    rates = speed_over_time([{"committed_ms": at} for at in times], total, most)
    assert len(rates) <= most
    if max([total, *times]) == 0.0:
        assert rates == []
        return
    tokens = sum(rate.rate * (rate.end - rate.begin) / 1e3 for rate in rates)
    assert tokens == pytest.approx(len(times))
    assert rates[0].begin == 0.0 and rates[-1].end == pytest.approx(max([total, *times]))
