"""The command `verifier selftest`: its checks find a wrong engine, and its report holds what a maintainer needs."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backends.trial.tiny_checks import small_options, splits_once, written
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.engines.load_options import LoadOptions
from tests.forking import Forking
from tests.models.conftest import TinyModel
from tests.paths import ROOT
from tests.verifier_server.processes import MODULE, environment

SELFTEST = [*MODULE, "selftest"]
SCRIPTED = ["--backend", "scripted", "--model", "7"]
# Runs the command with changed modules. {} is replaced by the lines of a test.
CHANGED = """
import sys
import numpy as np
import verifier_server.selftest as command
from backends.scripted import ScriptedBackend
from verifier_server.program import main
{}
sys.exit(main())
"""


# Only the model that is named is checked: the tiny one takes seconds with llama.cpp.
NO_TINY_MODEL = """
import backends.trial.tiny_checks as tiny
tiny.splits_once = lambda *_: True
"""

ONE_TINY_MODEL = """
import backends.trial.tiny_checks as tiny
variants = tiny.variants
tiny.variants = lambda *given, **how: variants(*given, **how)[:1]
"""


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs the command: `run(arguments, folder, lines, **variables)`, with `lines` of a test before it. Returns its
    status, what it printed, and its errors."""
    forking = Forking(
        "verifier_server.program",
        "verifier_server.selftest",
        "backends.trial.tiny_checks",
        "backends.llama_cpp.backend",
    )

    def ran(arguments: Sequence[str], folder: Path, lines: str = "", **more: str) -> tuple[int, str, str]:
        variables = environment(PYTHONPATH=str(ROOT), COLUMNS="100", **more)
        done = forking.run(["-c", CHANGED.format(lines), "selftest", *arguments], folder, variables)
        return done.returncode, done.stdout, done.stderr

    yield ran
    forking.close()


def verdicts(report: str) -> dict[str, list[str]]:
    """The names of checks by verdict."""
    found: dict[str, list[str]] = {"ok": [], "FAILED": [], "skipped": []}
    for verdict, name in re.findall(r"^(ok|FAILED|skipped) +([^:\n]+?)(?::|  \d)", report, re.MULTILINE):
        found[verdict].append(name)
    return found


def test_llama_cpp_passes_with_target_and_draft_model(tmp_path: Path, run: Run) -> None:
    given = ["--model", str(DEFAULT_TARGET), "--draft-model", str(DEFAULT_DRAFT), "--slots", "2", "--threads", "1"]
    status, printed, errors = run([*given, "--context", "256"], tmp_path)
    (path,) = tmp_path.glob("selftest-llama_cpp-*T*Z.txt")
    report = path.read_text()
    assert (status, errors) == (0, ""), report
    assert verdicts(report)["FAILED"] == []
    assert verdicts(report)["skipped"] == ["top logits"] * 2
    assert {"random batches with rollbacks", "copied slots", "draft model", "pass times"} <= set(verdicts(report)["ok"])
    assert "llama-cpp-python" in report and "Python 3" in report and "2 slots of 256 tokens" in report
    assert f"the report: {path.name}\n" in printed and "17 checks in" in printed


def test_engine_without_model_files_is_checked_on_its_model(tmp_path: Path, run: Run) -> None:
    status, _, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path)
    report = (tmp_path / "r.txt").read_text()
    assert (status, errors) == (0, ""), report
    assert verdicts(report)["skipped"] == ["draft model", "load"]
    assert "64 of 64 tokens equal, beside 3 other slots" in report


def test_engine_that_corrupts_a_slot_fails(tmp_path: Path, run: Run) -> None:
    """The logits of slot 1 are wrong if it shares a pass."""
    lines = (
        ONE_TINY_MODEL
        + """
import backends.llama_cpp.backend as llama
right = llama.LlamaBackend.extend
def wrong(self, batch):
    results = [np.array(rows) for rows in right(self, batch)]
    for entry, rows in zip(batch, results):
        if entry.slot == 1 and len(batch) > 1:
            rows += np.linspace(0, 1, rows.shape[1], dtype=np.float32)
    return results
llama.LlamaBackend.extend = wrong
"""
    )
    status, printed, _ = run(["--slots", "2", "--context", "256", "--report", "r.txt"], tmp_path, lines)
    report = (tmp_path / "r.txt").read_text()
    found = verdicts(report)
    assert status == 1
    assert set(found["FAILED"]) == {"random batches with rollbacks", "all slots in one pass", "copied slots"}
    assert "a full context" in found["ok"] and "a cached walk against one pass" in found["ok"]
    assert "Traceback" in report and "Traceback" not in printed and "slot 1" in printed


def test_model_that_cannot_be_loaded_is_a_failure(tmp_path: Path, run: Run) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF and nothing else")
    status, printed, _ = run(["--model", str(bad), "--report", "r.txt"], tmp_path, NO_TINY_MODEL)
    assert status == 1 and "load: ModelLoadError: " in printed
    assert "is no GGUF file that can be read: its version is " in (tmp_path / "r.txt").read_text()
    assert verdicts((tmp_path / "r.txt").read_text())["FAILED"] == ["load"]


def test_report_is_not_overwritten(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "r.txt"
    path.write_text("mine")
    status, printed, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path)
    assert (status, printed) == (2, "")
    assert errors == "verifier: --report: r.txt exists: name another file, or move this one away\n"
    assert path.read_text() == "mine"
    status, _, errors = run([*SCRIPTED, "--report", "none/r.txt"], tmp_path)
    assert status == 2 and errors.startswith("verifier: --report: none/r.txt cannot be written: No such file")


def test_report_is_complete_when_the_terminal_is_gone(tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    command = [*SELFTEST, *SCRIPTED, "--report", str(tmp_path / "r.txt")]
    process = subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=written, stderr=written)
    os.close(written)
    assert process.wait(60) == 0
    assert "6 checks in" in (tmp_path / "r.txt").read_text()


def test_tiny_model_takes_every_setting_of_serving(tmp_path: Path) -> None:
    """Any number of devices, and widths for larger batches than the tiny model's."""
    for devices, heads in ((1, 4), (2, 4), (3, 6), (8, 8)):
        assert written(tmp_path / str(devices), devices).config["num_key_value_heads"] == heads
    small = small_options("llama_cpp", LoadOptions(compile_widths=(1, 8, 48, 512), compile_spans=(128, 1024)))
    assert (small.compile_widths, small.compile_spans) == ((1, 8), (128,))


def test_engine_that_splits_one_model_is_recognised() -> None:
    split = LoadOptions(tensor_parallel=2, device="neuron")
    assert splits_once("torch", split)
    assert not splits_once("neuron_legacy", split)
    assert not splits_once("torch", replace(split, tensor_parallel=None))
    assert not splits_once("torch", replace(split, device="cuda"))


@pytest.mark.engine("torch")
@pytest.mark.parametrize("engine", ["torch", "neuron_legacy"])
def test_engines_that_need_torch_pass(tmp_path: Path, engine: str, run: Run) -> None:
    model = TinyModel(tmp_path / "tiny").folder
    given = ["--backend", engine, "--model", str(model), "--slots", "2", "--context", "127", "--batch-tokens", "128"]
    device = ["--device", "cpu"] if engine == "torch" else []
    lines = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"  # where this package of tests is
    lines += "from tests.stand_ins.neuron import standing_in; kept = standing_in(); kept.__enter__()"
    status, printed, errors = run([*given, *device, "--report", "r.txt"], tmp_path, lines)
    report = (tmp_path / "r.txt").read_text()
    assert status == 0 and "Traceback" not in errors, report
    assert engine == "torch" or "tiny-float32: 8 programs compiled and loaded in" in report
    assert "compared with NumPy in float64" in printed and "a tiny random Llama in bfloat16" in report
    copies = [] if engine == "torch" else ["copied slots"] * 2
    assert sorted(verdicts(report)["skipped"]) == sorted([*copies, *["top logits"] * 2, "draft model"])


def test_engine_without_logits_is_named(run: Run, tmp_path: Path) -> None:
    status, printed, errors = run(["--backend", "vllm"], tmp_path)
    assert (status, printed) == (2, "")
    assert errors == "verifier: --backend: vllm gives no logits to compare; each start checks it\n"
    assert not [*tmp_path.iterdir()]


def test_report_holds_no_key(tmp_path: Path, run: Run) -> None:
    process = {"pid": 3, "command": "drafter --prompt my diary"}
    devices = json.dumps([{"neuron_device": 0, "neuron_processes": [process]}])
    for name, lines in (("nvidia-smi", "echo $DRAFTER_API_KEY"), ("neuron-ls", f"echo '{devices}'")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
    secrets = {"VERIFIER_API_KEY": "first-key", "DRAFTER_API_KEY": "second-key", "NEURON_TOKEN": "third-key"}
    lines = """
def loaded(engine, options):
    print("a library says first-key")
    return ScriptedBackend()
command.load = loaded
"""
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    given = [*SCRIPTED, "--report", "r.txt"]
    status, _, _ = run(given, tmp_path, lines, **secrets, PATH=path, NEURON_RT_NUM_CORES="2")
    report = (tmp_path / "r.txt").read_text()
    assert status == 0
    assert "nvidia-smi: (hidden)" in report and "a library says (hidden)" in report
    assert "NEURON_RT_NUM_CORES=2" in report and "NEURON_TOKEN=(hidden)" in report
    assert "-key" not in report and '"neuron_device": 0' in report and "diary" not in report


def test_report_has_what_native_code_prints_right_before_a_crash(tmp_path: Path, run: Run) -> None:
    lines = """
import ctypes, os
def loaded(engine, options):
    os.write(2, b"no core is free")
    ctypes.string_at(0)
command.load = loaded
"""
    status, _, _ = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines)
    report = (tmp_path / "r.txt").read_text()
    assert status == -signal.SIGSEGV
    assert "…       load\nno core is free" in report
    assert "Fatal Python error: Segmentation fault" in report and "in loaded" in report


def test_signal_leaves_a_report_that_says_where(tmp_path: Path) -> None:
    lines = """
import os, signal, time
def loaded(engine, options):
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        time.sleep(60)
command.load = loaded
"""
    process = subprocess.Popen(
        [sys.executable, "-c", CHANGED.format(lines), "selftest", *SCRIPTED, "--report", "r.txt"],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(ROOT), TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert errors.endswith("verifier: interrupted; the report so far: r.txt\n") and "Traceback" not in errors
    report = (tmp_path / "r.txt").read_text()
    assert "interrupted in: load" in report and "in loaded" in report
    assert os.listdir(tmp_path) == ["r.txt"], "the folder of the tiny model is gone"
