"""The commands `verifier compile` and `verifier models`, and programs that go from one machine to another."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from huggingface_hub import constants

from backends.llama_cpp import load
from backends.registry import COMPILING, SHOWN, compiles
from models import DEFAULT_DRAFT
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import FreeMemory, LoadOptions
from tests.models.conftest import TinyModel
from tests.paths import ROOT
from tests.stand_ins.hub import serving
from tests.stand_ins.mountpoint import mounted
from tests.stand_ins.neuron import own_environment
from tests.verifier_server.conftest import Program
from tests.verifier_server.processes import MODULE, environment, errors_of_ended, run
from verifier_server import program
from verifier_server.model_files import fetch_programs, publish_programs
from verifier_server.settings import Settings

COMPILE = [*MODULE, "compile"]
# A verifier on the stand-in for transformers-neuronx. {} is replaced by further lines of a test.
STAND_IN = """
import sys
from tests.stand_ins.neuron import standing_in
from verifier_server.program import main
{}
with standing_in():
    sys.exit(main())
"""


def run_on_stand_in(arguments: Sequence[str], lines: str = "") -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-c", STAND_IN.format(lines), "compile", "--backend", "neuron_legacy", *arguments])


def small(model: Path) -> list[str]:
    return ["--model", str(model), "--slots", "2", "--context", "127", "--batch-tokens", "128"]


def test_only_some_engines_compile() -> None:
    assert not any(compiles(engine, LoadOptions(compile=True)) for engine in set(SHOWN) - set(COMPILING))
    assert compiles("neuron_legacy", LoadOptions())


@pytest.mark.engine("torch")
def test_torch_compiles_if_asked_to_and_on_neuron() -> None:
    assert not compiles("torch", LoadOptions(device="cpu"))
    assert compiles("torch", LoadOptions(device="cpu", compile=True))
    with own_environment():
        assert compiles("torch", LoadOptions(device="neuron"))
        assert os.environ["NEURON_RT_VISIBLE_CORES"] == "0", "claimed before the devices are counted"


def test_engine_that_compiles_nothing_is_refused(verifier: Program) -> None:
    words = "VERIFIER_BACKEND: llama_cpp compiles nothing: start the verifier, it needs no preparation"
    assert verifier("compile") == (2, "", f"verifier: {words}\n")


def test_mistyped_command_and_command_behind_flags_are_named(verifier: Program) -> None:
    for arguments, words in (
        (["compil"], "no command compil; did you mean compile?"),
        (
            ["everything"],
            "no command 'everything'; the commands are compile, selftest, models, key, invite, unshare, cert, "
            "completion",
        ),
        (["--slots", "2", "compile"], "compile comes first: verifier compile …"),
    ):
        assert verifier(*arguments) == (2, "", f"verifier: {words}\nverifier: '--help' lists the flags\n")


@pytest.mark.engine("torch")
def test_model_and_draft_model_are_compiled_and_freed(tmp_path: Path) -> None:
    target, draft = TinyModel(tmp_path / "target").folder, TinyModel(tmp_path / "draft").folder
    done = run_on_stand_in([*small(target), "--draft-model", str(draft), "--compile-cache", str(tmp_path / "kept")])
    assert done.returncode == 0, done.stderr
    words, _, seconds = done.stdout.partition(", in ")
    assert words == "compiled: target and draft"
    assert seconds.endswith(f" s; kept in {tmp_path / 'kept'}; start the verifier with the same settings\n")
    assert "Traceback" not in done.stderr


@pytest.mark.engine("torch")
def test_programs_are_put_into_the_store_and_found_there(tmp_path: Path) -> None:
    given = [*small(TinyModel(tmp_path / "tiny").folder), "--compile-store", str(tmp_path / "store")]
    done = run_on_stand_in([*given, "--compile-cache", str(tmp_path / "first")])
    assert done.returncode == 0 and "has no programs" in done.stderr, done.stderr
    assert f"copied the programs to {tmp_path / 'store'}" in done.stderr
    done = run_on_stand_in([*given, "--compile-cache", str(tmp_path / "second")])
    assert done.returncode == 0 and f"copied from {tmp_path / 'store'} to {tmp_path / 'second'}" in done.stderr
    assert "programs found compiled" in done.stderr and "to compile" not in done.stderr


@pytest.mark.engine("torch")
def test_error_about_the_draft_model_names_its_flag(tmp_path: Path) -> None:
    models = [str(TinyModel(tmp_path / name).folder) for name in ("target", "draft")]
    given = ["--backend", "torch", "--device", "cpu", "--model", models[0], "--draft-model", models[1]]
    done = run([*COMPILE, *given, "--compile", "yes", "--draft-device", "neuron:1"])
    assert done.returncode == 1 and "the draft model: --draft-device neuron:1: a process claims" in done.stderr
    assert "programs to compile" not in done.stderr, "it is found before the target is compiled"
    done = run([*COMPILE, *given, "--compile", "yes", "--draft-device", "foo"])
    assert done.returncode == 1 and "the draft model: --draft-device 'foo'" in done.stderr, done.stderr
    assert "programs to compile" not in done.stderr
    given[-1] += "-none"
    done = run([*COMPILE, *given, "--compile", "yes"])
    assert done.returncode == 1 and f"the draft model: no such model: {given[-1]}" in done.stderr


@pytest.mark.engine("torch")
def test_model_that_cannot_be_compiled_is_named_by_its_flag(tmp_path: Path) -> None:
    done = run_on_stand_in(["--model", str(tmp_path / "none")])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"verifier: the model could not be compiled: no such model: {tmp_path / 'none'}")
    done = run_on_stand_in([*small(TinyModel(tmp_path / "tiny").folder), "--device", "cuda"])
    assert done.returncode == 1 and "could not be compiled: --device 'cuda'" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_it_with_what_is_kept(tmp_path: Path, number: signal.Signals) -> None:
    waiting = """
import signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
import verifier_server.compile_command as command
def compiled(*_):
    print("compiling", flush=True)
    while True:
        time.sleep(60)
command.load = compiled
command.compiles = lambda *_: True
command.programs_folder = lambda engine, options: str(options.compile_cache)
sys.argv[1:] = ["compile", "--compile-cache", "kept"]
"""
    process = subprocess.Popen(
        [sys.executable, "-c", STAND_IN.replace("with standing_in():", "if True:").format(waiting)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "compiling\n"
    errors = errors_of_ended(process, number)
    assert errors.endswith("\nverifier: interrupted; compiled programs are kept in kept\n")
    assert "Traceback" not in errors


def test_a_pull_warns_of_the_memory_that_the_engine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = DEFAULT_DRAFT.read_bytes()
    with serving({"u/toy": {"Toy-F16.gguf": model}}) as stand_in:
        monkeypatch.setattr(constants, "ENDPOINT", stand_in.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(load, "room", lambda _options: FreeMemory(len(model)))
        assert program.models(["pull", "u/toy"]) == 0
    said = capsys.readouterr()
    assert Path(said.out.strip()).read_bytes() == model
    assert said.err.startswith("verifier: u/toy: ") and "lower the context; it is fetched all the same" in said.err


def machine(folder: Path, store: Path | None) -> Settings:
    return Settings(backend="neuron_legacy", compile_cache=folder, compile_store=store)


def test_programs_come_from_one_machine_to_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = machine(tmp_path / "1", tmp_path / "bucket"), machine(tmp_path / "2", tmp_path / "bucket")
    (tmp_path / "bucket").mkdir()
    with mounted(tmp_path / "bucket"):
        fetch_programs(second)
        assert f"compile_store {tmp_path / 'bucket'} has no programs: they are compiled here" in caplog.text
        (tmp_path / "1" / "neuron").mkdir(parents=True)
        (tmp_path / "1" / "neuron" / "a.neff").write_bytes(b"1")
        publish_programs(first)
        fetch_programs(second)
    assert (tmp_path / "2" / "neuron" / "a.neff").read_bytes() == b"1"


def test_without_a_store_nothing_is_copied(tmp_path: Path) -> None:
    settings = machine(tmp_path / "1", None)
    publish_programs(settings)
    fetch_programs(settings)
    assert list((tmp_path / "1").iterdir()) == []


def test_store_that_cannot_be_used_is_named_as_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = machine(tmp_path / "1", tmp_path / "file" / "below")
    with pytest.raises(ModelLoadError, match=r"compile_store .*below: cannot be written to: Not a directory") as caught:
        publish_programs(settings)
    assert caught.value.setting == "compile_store"


def test_engine_that_compiles_nothing_has_no_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="compile_store: the engine is scripted, which compiles nothing: leave it out"):
        Settings(backend="scripted", compile_store=tmp_path)
