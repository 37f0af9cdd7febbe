"""What the program of the README's picture says when something is missing: one line, with the command to run."""

import subprocess
import sys
from pathlib import Path

from scripts.real_models import BF16, DRAFT
from tests.paths import ROOT

RUN = "import runpy, sys; {}sys.argv = ['run_picture', *sys.argv[1:]]; runpy.run_module('lab.pictures.run', "


def _said(folder: Path, first: str = "") -> tuple[int, list[str]]:
    code = f"{RUN.format(first)}run_name='__main__')"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == ""
    return ran.returncode, ran.stderr.splitlines()


def test_a_missing_terminal_in_memory_is_named_with_what_installs_it(tmp_path: Path) -> None:
    command = f"{sys.executable} -m pip install -r requirements/dev.txt"
    without = "sys.modules['pyte'] = None; "
    assert _said(tmp_path, without) == (2, [f"not installed: pyte; install with: {command}"])


def test_missing_models_are_named_with_what_gets_them(tmp_path: Path) -> None:
    command = f"{sys.executable} -m scripts.real_models {tmp_path} --bf16"
    assert _said(tmp_path) == (1, [f"not in {tmp_path}: {BF16}, {DRAFT.name}; get them with: {command}"])
    (tmp_path / DRAFT.name).touch()
    assert _said(tmp_path)[1][0].startswith(f"not in {tmp_path}: {BF16}; ")
