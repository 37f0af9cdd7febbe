"""The simulator in a terminal: what `run` prints fits, and Ctrl-C ends all its processes."""

import sys
from pathlib import Path

import pytest

from tests.terminal.pseudo import check, python, terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals and /proc as on Linux")
SIMULATOR = python("-m", "lab.simulator")
FILE = """
sim_time_ms: MS
replications: 2
mode: target
devices:
  verifiers: [{name: big, count: 2, cost: {law: linear, decode_ms: 25}}]
workload: {arrival: poisson, rate_rps: 6, prompt_tokens: 20, output_tokens: 12, tenants: [{name: chat}, {name: code}]}
slo: {ttft_ms: 100}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet\x1b]0;pwned\x07[bold].yaml"


def test_a_run_fits_100_columns_and_a_hostile_name_stays_text(file: Path, tmp_path: Path) -> None:
    file.write_text(FILE.replace("MS", "3000"), encoding="utf-8")
    with terminal([*SIMULATOR, "run", str(file), "--output", str(tmp_path / "r"), "--jobs=1"], 100) as screen:
        assert screen.wait() == 0, screen.text
    notes = [line for line in screen.lines if line.startswith("simulator: ")]  # they have paths
    assert len(notes) in (1, 2) and "the report is" in notes[-1]
    wide = [line for line in screen.lines if len(line) > 100 and line not in notes]
    assert not wide and "Traceback" not in screen.text
    assert "simulation: fleet\\x1b]0;pwned\\x07[bold]" in screen.text
    assert "\x1b]0;" not in screen.raw
    assert all(word in screen.text for word in ("TTFT", "throughput", "chat", "big-2"))


def test_a_run_that_is_interrupted_leaves_nothing_running(file: Path, tmp_path: Path) -> None:
    """Ctrl-C comes as early as the bar is there, while the processes still import their modules."""
    file.write_text(FILE.replace("MS", "36000000"), encoding="utf-8")
    with terminal([*SIMULATOR, "run", str(file), "--output", str(tmp_path / "r"), "--jobs=2"], 200) as screen:
        screen.wait_for_raw("replications")
        screen.type("\x03")
        assert screen.wait() == 130, screen.text
        screen.wait_until_alone()
    assert "interrupted: 0 of 2 replications have ended" in screen.text
    check(screen, 200)
