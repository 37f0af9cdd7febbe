"""The self-check of llama.cpp in a child process, with stand-ins for children that crash, hang or fail cleanly."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.llama_cpp import selfcheck
from backends.llama_cpp.library import lib
from backends.llama_cpp.load import load
from backends.llama_cpp.selfcheck import child_command, extra_buffers
from models import DEFAULT_DRAFT
from specpair.engines.errors import EngineCrash, ModelLoadError
from specpair.engines.load_options import LoadOptions

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
