"""A benchmark without a package of an extra says what to install."""

import os
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def test_a_benchmark_without_its_extra_says_which(tmp_path: Path) -> None:
    (tmp_path / "gguf.py").write_text('raise ModuleNotFoundError("No module named \'gguf\'", name="gguf")')
    given = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "lab.benchmarks.latency_sweep"]
    ran = subprocess.run(command, env=given, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("gguf is not installed: ") and ran.stderr.count("\n") == 1
    assert "llama" in ran.stderr
