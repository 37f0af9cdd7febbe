"""Child processes that run llama.cpp: the self-check, with stand-ins that crash, hang or fail, and copies in Q4_0."""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest

from backends.llama_cpp import load as loading
from backends.llama_cpp import requantised as module
from backends.llama_cpp import selfcheck
from backends.llama_cpp.library import lib
from backends.llama_cpp.load import load
from backends.llama_cpp.requantised import requantised
from backends.llama_cpp.selfcheck import ChildResult, child_command, extra_buffers
from models import DEFAULT_DRAFT
from models.hub.gguf_head import read_head
from specpair.engines.errors import EngineCrash, ModelLoadError
from specpair.engines.load_options import FASTEST, LoadOptions

FINE = "pass"
HANGS = "import signal; signal.pause()"
WITH_AMX = "model name\t: Some Xeon\nflags\t\t: fpu amx_tile amx_int8\n\nmodel name\t: another core\n"
WITHOUT_AMX = "model name\t: Some Xeon\ncpu MHz\t\t: 2000.000\nflags\t\t: fpu avx2\n\n"


def dies(number: signal.Signals) -> str:
    return f"import os; os.kill(os.getpid(), {number.value})"


class Machine:
    """A machine on which the children run this Python code: `extra` with extra buffers, `plain` without."""

    def __init__(self, folder: Path, extra: str, plain: str = FINE, cpuinfo: str = WITHOUT_AMX) -> None:
        self.tries: list[bool] = []
        self.cache = folder / "cache"
        self.cpuinfo = folder / "cpuinfo"
        self.cpuinfo.write_text(cpuinfo, encoding="utf-8")
        self._code = {True: extra, False: plain}

    def _command(self, model: Path, extra: bool) -> Sequence[str]:
        assert model == DEFAULT_DRAFT
        self.tries.append(extra)
        return [sys.executable, "-S", "-c", self._code[extra]]

    def check(self, timeout: float = 60.0) -> bool:
        return extra_buffers(folder=self.cache, command=self._command, timeout=timeout, cpuinfo=self.cpuinfo)


def test_success_is_checked_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, FINE)
    assert [machine.check(), machine.check()] == [True, True]
    assert machine.tries == [True]


@pytest.mark.parametrize("extra", [dies(signal.SIGSEGV), dies(signal.SIGILL), dies(signal.SIGABRT)])
def test_crash_with_extra_buffers_is_stored(tmp_path: Path, extra: str, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(tmp_path, extra, cpuinfo=WITH_AMX)
    assert [machine.check(), machine.check()] == [False, False]
    assert machine.tries == [True, False]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 2  # one per load
    assert all("without them" in line and "-fno-dse" in line and "\n" not in line for line in warnings)


def test_hanging_child_is_killed_and_counts_as_a_crash(tmp_path: Path) -> None:
    machine = Machine(tmp_path, HANGS)
    assert machine.check(timeout=1.0) is False
    assert machine.tries == [True, False]


@pytest.mark.parametrize(
    ("number", "cpuinfo", "cause"),
    [
        (signal.SIGSEGV, WITH_AMX, "GCC 12 compiled it without -fno-dse"),
        (signal.SIGSEGV, WITHOUT_AMX, "its wheel does not fit this machine"),
        (signal.SIGILL, WITH_AMX, "its wheel was compiled for another processor"),
    ],
)
def test_crash_both_ways_is_an_error_with_signal_cause_and_repair(
    tmp_path: Path, number: signal.Signals, cpuinfo: str, cause: str
) -> None:
    machine = Machine(tmp_path, dies(number), dies(number), cpuinfo)
    for _ in range(2):  # a failure is not stored, since it may be repaired
        with pytest.raises(EngineCrash) as caught:
            machine.check()
    message = str(caught.value)
    assert f"died by {number.name}" in message and cause in message
    build = f"CXXFLAGS=-fno-dse CMAKE_ARGS=-DLLAVA_BUILD=OFF {sys.executable} -m pip install --force-reinstall"
    assert build in message
    assert "--no-cache-dir" in message and "llama-cpp-python==0." in message
    assert machine.tries == [True, False, True, False]
    assert isinstance(caught.value, ModelLoadError)


@pytest.mark.parametrize("ends", ["raise SystemExit(1)", dies(signal.SIGKILL), dies(signal.SIGTERM)])
def test_clean_failure_or_killed_child_decides_nothing(tmp_path: Path, ends: str) -> None:
    machine = Machine(tmp_path, ends)
    assert [machine.check(), machine.check()] == [True, True]
    assert machine.tries == [True, True]
    assert not machine.cache.exists()


@pytest.mark.parametrize("extra", [True, False])
def test_real_child_runs_its_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: bool) -> None:
    (tmp_path / "backends.py").write_text("raise SystemExit(7)", encoding="utf-8")  # a module of the user
    monkeypatch.chdir(tmp_path)
    result = selfcheck.run_child(child_command(DEFAULT_DRAFT, extra), 60.0)
    assert result == selfcheck.ChildResult(0, "")


def test_load_uses_the_result_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    real = lib.llama_model_load_from_file

    def record(path: bytes, params: object) -> object:
        used.append(params.use_extra_bufts)  # type: ignore[attr-defined]
        return real(path, params)

    monkeypatch.setattr(lib, "llama_model_load_from_file", record)
    for works in (False, True):
        monkeypatch.setattr(selfcheck, "extra_buffers", lambda works=works: works)
        load(LoadOptions(model=DEFAULT_DRAFT, context_length=64)).close()
    assert used == [False, True]


def test_setup_prints_a_crash_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash() -> bool:
        raise EngineCrash("it died")

    monkeypatch.setattr(selfcheck, "extra_buffers", crash)
    assert selfcheck.main([]) == 1
    assert capsys.readouterr().err == "setup: it died\n"
    assert os.path.isfile(DEFAULT_DRAFT)


def test_setup_fails_where_the_library_does_not_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> object:
        raise RuntimeError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(selfcheck, "extra_buffers", lambda: True)
    monkeypatch.setattr(selfcheck, "import_module", missing)
    monkeypatch.setattr(metadata, "version", lambda name: "9.8+specpair.1")
    assert selfcheck.main([]) == 1
    said = capsys.readouterr().err
    assert said.startswith("setup: llama.cpp does not load: libgomp.so.1: cannot open shared object file. Compile it: ")
    assert " llama-cpp-python==9.8" in said and "specpair.1" not in said, "a version that has a source"


Q4_0 = 2  # ggml's number


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 0)


@pytest.fixture
def model(in_floats: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(in_floats, tmp_path / "small.gguf"))


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The commands of the children that were run from now on."""
    run: Callable[..., ChildResult | None] = selfcheck.run_child
    found: list[object] = []

    def counted(command: object, *arguments: object, **named: object) -> ChildResult | None:
        found.append(command)
        return run(command, *arguments, **named)

    monkeypatch.setattr(module, "run_child", counted)
    return found


def test_the_copy_is_in_q4_0_and_made_once(model: Path, tmp_path: Path, children: list[object]) -> None:
    shares: list[float] = []
    copies = [requantised(model, shares.append, tmp_path / "copies") for _ in range(2)]
    assert copies[0] == copies[1] and copies[0].name == "small-q4_0.gguf" and len(children) == 1
    assert {each.kind for each in read_head(copies[0]).tensors if len(each.shape) > 1} == {Q4_0}
    assert all(0.0 <= each <= 1.0 for each in shares)
    assert not list((tmp_path / "copies").rglob("*.part"))


def test_the_copy_of_a_file_that_is_gone_is_removed(model: Path, tmp_path: Path) -> None:
    copy = requantised(model, folder=tmp_path / "copies")
    other = model.rename(tmp_path / "other.gguf")
    assert requantised(other, folder=tmp_path / "copies").is_file() and not copy.exists()


@pytest.mark.parametrize("reason", ["already in 4 bits", "small"])
def test_no_copy_where_it_would_hardly_be_faster(
    reason: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: list[object]
) -> None:
    if reason == "small":
        monkeypatch.setattr(module, "LEAST_BYTES", 1 << 30)
    else:
        model = requantised(model, folder=tmp_path / "copies")
        children.clear()
    assert requantised(model, folder=tmp_path / "others") == model and not children


def test_a_crash_of_the_library_is_said_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "run_child", lambda *_, **__: ChildResult(-6, ""))
    assert [requantised(model, folder=tmp_path / "copies") for _ in range(2)] == [model, model]
    told = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert told == ["small.gguf runs in its stored type: no Q4_0 copy could be made: llama.cpp died by SIGABRT"]


@pytest.mark.parametrize("gpu", [False, True])
def test_only_a_cpu_computes_with_the_copy(
    gpu: bool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(loading, "on_gpus", lambda _: gpu)
    with closing(load(LoadOptions(model=model, weights=FASTEST, context_length=64))) as backend:
        assert backend.model_name == ("small" if gpu else "small-q4_0")
