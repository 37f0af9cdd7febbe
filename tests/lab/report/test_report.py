"""`drafter report`: the whole output in the terminal."""

import json
from pathlib import Path

import pytest

from drafter_client.statistics import Stats
from drafter_client.trace.writer import TraceFolder
from lab.report import command
from tests.drafter_client.trace.folders import DETAIL, write

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
