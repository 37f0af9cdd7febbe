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
from tests.terminal.pseudo import terminal
from tests.verifier_server.processes import MODULE, environment, errors_of_ended
from verifier_server.selftest.printed import hider

SELFTEST = [*MODULE, "selftest"]
SCRIPTED = ["--backend", "scripted", "--model", "7"]
# Runs the command with changed modules. {} is replaced by the lines of a test.
CHANGED = """
import sys
import numpy as np
import verifier_server.commands.selftest_command as command
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
        "verifier_server.commands.selftest_command",
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
    assert max(map(len, printed.splitlines())) <= 100


def test_engine_without_model_files_is_checked_on_its_model(tmp_path: Path, run: Run) -> None:
    status, _, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path)
    report = (tmp_path / "r.txt").read_text()
    assert (status, errors) == (0, ""), report
    assert verdicts(report)["skipped"] == ["draft model", "load"]
    assert "64 of 64 tokens equal, beside 3 other slots" in report


def test_without_a_model_only_the_tiny_one_is_checked(tmp_path: Path, run: Run) -> None:
    status, printed, _ = run(["--backend", "scripted", "--report", "r.txt"], tmp_path)
    assert status == 0 and "name it with --model or VERIFIER_MODEL" in " ".join(printed.split())


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


def test_engine_that_forgets_too_little_fails(tmp_path: Path, run: Run) -> None:
    """A rollback leaves what the slot held, and slot 0 depends on its neighbours."""
    lines = """
def loaded(engine, options):
    class Wrong(ScriptedBackend):
        def _forward(self, batch):
            longer = [each._replace(start=self.length(each.slot)) if each.start else each for each in batch]
            return [np.roll(rows, len(batch) - 1, axis=1) for rows in super()._forward(longer)]
    return Wrong()
command.load = loaded
"""
    status, _, _ = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines)
    report = (tmp_path / "r.txt").read_text()
    assert status == 1
    assert verdicts(report)["FAILED"] == ["a cached walk against one pass", "decoding alone and beside other slots"]


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


def test_report_holds_no_key(tmp_path: Path, run: Run) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "1 verifier --api-key other-key --slots 2 # $DRAFTER_API_KEY"\n')
    program.chmod(0o755)
    program = tmp_path / "neuron-ls"
    process = {"pid": 3, "command": "drafter --prompt my diary", "args": ["drafter", "--api-key", "other-key"]}
    program.write_text(f"#!/bin/sh\necho '{json.dumps([{'neuron_device': 0, 'neuron_processes': [process]}])}'\n")
    program.chmod(0o755)
    secrets = {"VERIFIER_API_KEY": "first-key", "DRAFTER_API_KEY": "second-key", "NEURON_TOKEN": "third-key"}
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    status, _, _ = run([*SCRIPTED, "--report", "r.txt"], tmp_path, **secrets, PATH=path, NEURON_RT_NUM_CORES="2")
    report = (tmp_path / "r.txt").read_text()
    assert status == 0
    assert "1 verifier --api-key (hidden) --slots 2 # (hidden)" in report
    assert "NEURON_RT_NUM_CORES=2" in report and "NEURON_TOKEN=(hidden)" in report
    assert "-key" not in report.replace("--api-key", "")
    assert '"pid": 3' in report and '"command": "drafter …"' in report and "diary" not in report


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("drafter --api-key K1 --slots 2", "drafter --api-key (hidden) --slots 2"),
        ('["--api-key","K1", "--slots"]', '["--api-key",(hidden) "--slots"]'),
        ('--password "two words" --slots 2', "--password (hidden) --slots 2"),
        ('--password "cut off in', "--password (hidden)"),
        ("--token it's,]}mine --slots", "--token (hidden) --slots"),
        ("x-api-key: sk-1", "x-api-key: (hidden)"),
        ("https://h/?token=T1 x", "https://h/?token=(hidden) x"),
        ("AWS_ACCESS_KEY_ID=A1", "AWS_ACCESS_KEY_ID=(hidden)"),
        ('{"apiKey": "K1"}', '{"apiKey": (hidden)'),
        ("password: hunter2", "password: (hidden)"),
        ("redis://:p/w@host", "redis://(hidden)@host"),
        ("Authorization: Bearer sk-1 and more", "Authorization: Bearer (hidden) and more"),
        ("http://me:pw@proxy:3128", "http://(hidden)@proxy:3128"),
        ("aws_secret=S1 OPENAI_API_KEY='S2' x", "aws_secret=(hidden) OPENAI_API_KEY=(hidden) x"),
        ('{"api_key": "K1", "slots": 2}', '{"api_key": (hidden) "slots": 2}'),
        ("an own-secret here", "an (hidden) here"),
        *[
            (text, text)
            for text in (
                "--keys-file keys.toml --batch-tokens 128",
                "max_batch_tokens=3, tokens: 512, eos_token: 2 is no id, 'pad_token_id': 0, cache_key = abc",
                "single-token passes, a token that is no id",
                "batch_tokens             512        default",
                "http://proxy:3128/user",
            )
        ],
    ],
)
def test_secrets_are_hidden_and_nothing_else(text: str, hidden: str) -> None:
    assert hider(["own-secret", "of"])(text) == hidden


@pytest.mark.parametrize("word", ["a", "-", "_", "://", "://a", "=", "key", "--token", " "])
def test_very_long_words_take_no_time(word: str) -> None:
    """With patterns that try each place anew, these would take hours."""
    hide, text = hider(["own-secret"]), word * 200_000
    assert hide(text) == text
    assert hide(f"{text} own-secret") == f"{text} (hidden)"


def test_report_has_what_libraries_and_native_code_print(tmp_path: Path, run: Run) -> None:
    """Also what they print right before a crash."""
    lines = """
import ctypes, logging, os, subprocess
def loaded(engine, options):
    logging.getLogger("torch_neuronx").warning("a library says first-key")
    print("on standard output")
    os.write(2, b"native\\r\\x1b[31mcode\\x1b[0m\\n")
    subprocess.run(["echo", "a child"])
    os.write(2, b"no core is free")
    ctypes.string_at(0)
command.load = loaded
"""
    status, printed, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines, VERIFIER_API_KEY="first-key")
    report = (tmp_path / "r.txt").read_text()
    assert status == -signal.SIGSEGV
    assert "…       load" in report and "Fatal Python error: Segmentation fault" in report and "in loaded" in report
    copied = [line.removeprefix("        | ") for line in report.splitlines() if line.startswith("        | ")]
    assert copied == [
        "WARNING:  a library says (hidden)",
        "on standard output",
        "code",
        "a child",
        "no core is free",
    ]
    assert "on standard output" in errors and "first-key" in errors and "on standard output" not in printed


def test_report_is_complete_when_the_terminal_is_gone(tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    command = [*SELFTEST, *SCRIPTED, "--report", str(tmp_path / "r.txt")]
    process = subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=written, stderr=written)
    os.close(written)
    assert process.wait(60) == 0
    assert "6 checks in" in (tmp_path / "r.txt").read_text()


@pytest.mark.parametrize("closed", [*(pytest.param(each, marks=pytest.mark.slow) for each in ((0,), (1,))), (0, 1)])
def test_closed_streams_are_no_part_of_the_report(tmp_path: Path, closed: tuple[int, ...], run: Run) -> None:
    lines = f"""
import os
from specpair.command_line.start import open_streams
[os.close(each) for each in {closed}]
sys.stdout = sys.__stdout__ = None
open_streams()  # as the program does at its start
"""
    status, _, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines)
    report = (tmp_path / "r.txt").read_text()
    assert status == 0 and "        | " not in report and "6 checks in" in report, report + errors


def test_full_disk_is_an_error_of_one_line(tmp_path: Path, run: Run) -> None:
    """What checks print goes on."""
    lines = """
import resource, signal, subprocess
def loaded(engine, options):
    subprocess.run(["seq", "-f", "printed %.0f", "300"], check=True)
    return ScriptedBackend()
command.load = loaded
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
"""
    status, _, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines)
    assert status == 1 and "printed 300\n" in errors, errors
    assert errors.endswith("verifier: r.txt cannot be written any more: File too large\n")


def test_child_that_lives_on_delays_nothing(tmp_path: Path, run: Run) -> None:
    lines = """
import subprocess
children = []
def loaded(engine, options):
    print("first")
    children.append(subprocess.Popen(["sleep", "100"]))
    return ScriptedBackend()
command.load = loaded
import atexit
atexit.register(lambda: [child.kill() for child in children])
"""
    status, _, _ = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines)
    report = (tmp_path / "r.txt").read_text().splitlines()
    assert status == 0
    at = report.index("        | first")
    assert report[at - 1] == "…       load" and report[at + 1].startswith("ok      load"), "in the order of events"
    assert sum(float(line.split()[-2]) for line in report if line.startswith("ok ")) < 4


def test_path_that_is_no_text_is_reported(tmp_path: Path, run: Run) -> None:
    status, _, errors = run([*SCRIPTED[:2], "--model", "/none/m\udcff", "--report", "r.txt"], tmp_path)
    assert "Traceback" not in errors and status == 1
    assert "\\udcff" in (tmp_path / "r.txt").read_text()


def test_tiny_model_takes_every_setting_of_serving(tmp_path: Path) -> None:
    """Any number of devices, and widths for larger batches than the tiny model's."""
    for devices, heads in ((1, 4), (2, 4), (3, 6), (8, 8)):
        assert written(tmp_path / str(devices), devices).config["num_key_value_heads"] == heads
    small = small_options("llama_cpp", LoadOptions(compile_widths=(1, 8, 48, 512), compile_spans=(128, 1024)))
    assert (small.compile_widths, small.compile_spans) == ((1, 8), (128,))


@pytest.mark.parametrize("columns", [60, pytest.param(100, marks=pytest.mark.slow)])
def test_terminal_shows_lines_that_fit(tmp_path: Path, columns: int) -> None:
    report = str(tmp_path / "r.txt")
    with terminal([*SELFTEST, *SCRIPTED, "--report", report], columns) as shown:
        assert shown.wait() == 0
        assert max(len(line) for line in shown.lines if report not in line) <= columns
        assert shown.coloured and "6 checks in" in shown.text and report in shown.text


@pytest.mark.parametrize(
    "number", [*(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGHUP)), signal.SIGTERM]
)
def test_signal_leaves_a_report_that_says_where(tmp_path: Path, number: signal.Signals) -> None:
    lines = """
import signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
def loaded(engine, options):
    print("loading", flush=True)
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
    assert process.stderr is not None
    assert any(line == "loading\n" for line in process.stderr), "it ended before it loaded"
    errors = errors_of_ended(process, number)
    assert errors.endswith("verifier: interrupted; the report so far: r.txt\n") and "Traceback" not in errors
    report = (tmp_path / "r.txt").read_text()
    assert "interrupted in: load" in report and "in loaded" in report
    assert os.listdir(tmp_path) == ["r.txt"], "the folder of the tiny model is gone"


def test_signal_after_the_last_check_leaves_a_whole_report(tmp_path: Path, run: Run) -> None:
    lines = """
import os, signal, time
from verifier_server.selftest.report import SelftestReport
finish = SelftestReport.finish
def slowly(self):
    status = finish(self)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
    return status
SelftestReport.finish = slowly
"""
    status, printed, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines, TMPDIR=str(tmp_path))
    assert status == -signal.SIGINT and "6 checks in" in printed and "Traceback" not in errors
    report = (tmp_path / "r.txt").read_text()
    assert "6 checks in" in report and "interrupted in: no check" in report
    assert os.listdir(tmp_path) == ["r.txt"]


def test_without_a_folder_for_temporary_files_nothing_begins(tmp_path: Path, run: Run) -> None:
    lines = """
def none():
    raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")
command.gettempdir = none
"""
    status, _, errors = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines)
    assert status == 2 and os.listdir(tmp_path) == []
    assert errors == (
        "verifier: TMPDIR: No usable temporary directory found in ['/tmp']: name a folder for temporary files\n"
    )


def test_many_slots_in_a_small_batch_are_no_failure(tmp_path: Path, run: Run) -> None:
    given = ["--slots", "8", "--batch-tokens", "32", "--max-drafts", "8", "--report", "r.txt"]
    status, _, _ = run([*SCRIPTED, *given], tmp_path)
    report = (tmp_path / "r.txt").read_text()
    assert status == 0 and "64 of 64 tokens equal, beside 7 other slots" in report, report


@pytest.mark.engine("torch")
def test_control_characters_do_not_reach_the_terminal(tmp_path: Path, run: Run) -> None:
    status, printed, _ = run(
        ["--backend", "torch", "--model", "/none/\x1b[31mred", "--report", "\x1b[31mr.txt"], tmp_path
    )
    assert status == 1 and "\x1b" not in printed and "\\x1b[31mr.txt" in printed
    assert "\x1b" not in (tmp_path / "\x1b[31mr.txt").read_text()


def test_second_model_that_a_process_cannot_split_is_not_tried(tmp_path: Path, run: Run) -> None:
    lines = """
import backends.trial.tiny_checks as checks
checks.splits_once = lambda *_: True
checks.TEST_ENGINES = ()
"""
    status, _, _ = run([*SCRIPTED, "--report", "r.txt"], tmp_path, lines)
    report = (tmp_path / "r.txt").read_text()
    assert status == 0 and "load: one process splits one model: run the self-test without a model, too" in report


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
