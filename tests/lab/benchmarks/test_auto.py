"""The rate of `auto` is reported as a share of that of the best mode in the same run, prompts left out."""

from argparse import Namespace
from pathlib import Path

import pytest

from drafter_client import Mode
from lab.benchmarks.auto import COLD, WARM, tell
from lab.benchmarks.harness.report import Report
from lab.benchmarks.harness.texts import Written


def test_auto_is_reported_as_a_share_of_the_best_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Namespace(texts=2, tokens=128)
    seconds = {Mode.TARGET: 4.0, Mode.FUSED: 2.0, Mode.REMOTE: 1.0, COLD: 1.25, WARM: 1.0}
    written = {str(way): [Written([0] * 128, 1.0, each)] * 2 for way, each in seconds.items()}
    tell(Report("auto", options, folder=tmp_path), 0.4, written, options)
    shown = capsys.readouterr().out
    assert "best mode: remote" in shown
    rows = {line[:14].strip(): line[14:].split() for line in shown.splitlines() if line.startswith("  ")}
    assert rows["auto cold"][:3] == ["101.6", "3.20", "0.800"] and rows["auto warm"][2] == "1.000"
    assert rows["target"][:2] == ["31.8", "1.00"]
