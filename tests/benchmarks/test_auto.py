"""What `auto` made is told as a share of the best mode of the same run, the prompt left out."""

from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.auto import COLD, WARM, Written, _tell
from benchmarks.report import Report
from drafter_client import Mode
from drafter_client.metrics.statistics import Stats


def test_the_share_is_of_the_best_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Namespace(texts=2, tokens=128, explain=True)
    seconds = {Mode.TARGET: 4.0, Mode.FUSED: 2.0, Mode.REMOTE: 1.0, COLD: 1.25, WARM: 1.0}
    written = {str(way): [Written(127, each, Stats(why="so"))] * 2 for way, each in seconds.items()}
    _tell(Report("auto", options, folder=tmp_path), 0.4, written, options)
    shown = capsys.readouterr().out
    assert "best mode: remote" in shown and "auto cold: 101.6 () so" in shown
    rows = {line[:14].strip(): line[14:].split() for line in shown.splitlines() if line.startswith("  ")}
    assert rows["auto cold"][:3] == ["101.6", "3.20", "0.800"] and rows["auto warm"][2] == "1.000"
    assert rows["target"][:2] == ["31.8", "1.00"]
