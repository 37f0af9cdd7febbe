"""The trial of llama.cpp in a child process, with stand-ins for children that die, hang or fail in good order."""

import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.base import EngineCrash, LoadOptions, ModelLoadError
from backends.llama_cpp import backend, selfcheck
from backends.llama_cpp.selfcheck import SMALL_MODEL, child_command, extra_buffers
from backends.machine import cache_folder

FINE = "pass"
HANGS = "import signal; signal.pause()"
WITH_AMX = "model name\t: Some Xeon\nflags\t\t: fpu amx_tile amx_int8\n\nmodel name\t: another core\n"
WITHOUT_AMX = "model name\t: Some Xeon\ncpu MHz\t\t: 2000.000\nflags\t\t: fpu avx2\n\n"


def dies(number: signal.Signals) -> str:
    return f"import os; os.kill(os.getpid(), {number.value})"


class Machine:
    """A machine on which the trial's children do what these lines of Python say."""

    def __init__(self, folder: Path, extra: str, plain: str = FINE, cpuinfo: str = WITHOUT_AMX) -> None:
        self.tries: list[bool] = []
        self.kept = folder / "kept"
        self.cpuinfo = folder / "cpuinfo"
        self.cpuinfo.write_text(cpuinfo, encoding="utf-8")
        self._code = {True: extra, False: plain}

    def _command(self, model: Path, extra: bool) -> Sequence[str]:
        assert model == SMALL_MODEL
        self.tries.append(extra)
        return [sys.executable, "-S", "-c", self._code[extra]]

    def ask(self, patience: float = 60.0) -> bool:
        return extra_buffers(folder=self.kept, command=self._command, patience=patience, cpuinfo=self.cpuinfo)


def test_what_works_is_tried_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, FINE)
    assert [machine.ask(), machine.ask()] == [True, True]
    assert machine.tries == [True]


def test_it_is_tried_again_on_another_processor_and_not_at_another_clock_rate(tmp_path: Path) -> None:
    machine = Machine(tmp_path, FINE)
    machine.ask()
    machine.cpuinfo.write_text(WITHOUT_AMX.replace("2000", "3100"), encoding="utf-8")
    machine.ask()
    assert machine.tries == [True]
    machine.cpuinfo.write_text(WITH_AMX, encoding="utf-8")
    machine.ask()
    assert machine.tries == [True, True]


def test_it_is_tried_again_with_another_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, FINE)
    library = tmp_path / "lib"
    library.mkdir()
    (library / "libggml.so").write_bytes(b"one")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(library))
    machine.ask()
    (library / "libggml.so").write_bytes(b"other")
    machine.ask()
    assert machine.tries == [True, True]


def test_a_spoilt_note_is_not_believed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, FINE)
    machine.ask()
    [kept] = machine.kept.iterdir()
    for spoilt in ("", "{", "[]", '{"extra_buffers": "no"}'):
        kept.write_text(spoilt, encoding="utf-8")
        machine.ask()
    assert machine.tries == [True] * 5
    assert json.loads(kept.read_text(encoding="utf-8"))["extra_buffers"] is True


def test_a_folder_that_cannot_be_written_only_costs_the_memory(tmp_path: Path) -> None:
    machine = Machine(tmp_path, FINE)
    machine.kept.write_text("a file in its place", encoding="utf-8")
    assert [machine.ask(), machine.ask()] == [True, True]
    assert machine.tries == [True, True]


@pytest.mark.parametrize("extra", [dies(signal.SIGSEGV), dies(signal.SIGILL), dies(signal.SIGABRT)])
def test_extra_buffers_that_crash_are_left_out_from_then_on(
    tmp_path: Path, extra: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path, extra, cpuinfo=WITH_AMX)
    assert [machine.ask(), machine.ask()] == [False, False]
    assert machine.tries == [True, False]
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2  # one a load
    assert all("without them" in line and "-fno-dse" in line and "\n" not in line for line in said)


def test_a_child_that_hangs_is_ended_and_counts_as_a_crash(tmp_path: Path) -> None:
    machine = Machine(tmp_path, HANGS)
    assert machine.ask(patience=1.0) is False
    assert machine.tries == [True, False]


@pytest.mark.parametrize(
    ("number", "cpuinfo", "cause"),
    [
        (signal.SIGSEGV, WITH_AMX, "GCC 12 compiled it without -fno-dse"),
        (signal.SIGSEGV, WITHOUT_AMX, "its wheel does not fit this machine"),
        (signal.SIGILL, WITH_AMX, "its wheel was compiled for another processor"),
    ],
)
def test_what_dies_both_ways_is_an_error_with_signal_cause_and_mend(
    tmp_path: Path, number: signal.Signals, cpuinfo: str, cause: str
) -> None:
    machine = Machine(tmp_path, dies(number), dies(number), cpuinfo)
    for _ in range(2):  # a failure is not remembered: it may be mended
        with pytest.raises(EngineCrash) as caught:
            machine.ask()
    said = str(caught.value)
    assert f"died by {number.name}" in said and cause in said
    assert f"CXXFLAGS=-fno-dse CMAKE_ARGS=-DLLAVA_BUILD=OFF {sys.executable} -m pip install --force-reinstall" in said
    assert "--no-cache-dir" in said and "llama-cpp-python==0." in said
    assert machine.tries == [True, False, True, False]
    assert isinstance(caught.value, ModelLoadError)


def test_what_hangs_both_ways_is_an_error_that_says_for_how_long(tmp_path: Path) -> None:
    with pytest.raises(EngineCrash, match=r"did not come to an end within 0\.5 s"):
        Machine(tmp_path, HANGS, HANGS).ask(patience=0.5)


@pytest.mark.parametrize("ends", ["raise SystemExit(1)", dies(signal.SIGKILL), dies(signal.SIGTERM)])
def test_a_failure_in_good_order_and_a_child_that_somebody_ended_decide_nothing(tmp_path: Path, ends: str) -> None:
    machine = Machine(tmp_path, ends)
    assert [machine.ask(), machine.ask()] == [True, True]
    assert machine.tries == [True, True]
    assert not machine.kept.exists()


def test_ctrl_c_in_the_child_is_ctrl_c(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Machine(tmp_path, f"import signal; signal.signal(2, signal.SIG_DFL); {dies(signal.SIGINT)}").ask()


def test_without_the_small_model_nothing_is_tried(tmp_path: Path) -> None:
    assert extra_buffers(tmp_path / "none.gguf", folder=tmp_path, command=lambda *_: pytest.fail("tried"))


def test_without_a_child_nothing_is_decided(tmp_path: Path) -> None:
    assert extra_buffers(folder=tmp_path, command=lambda *_: [str(tmp_path / "no-python")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("extra", [True, False])
def test_the_real_child_runs_its_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: bool) -> None:
    (tmp_path / "backends.py").write_text("raise SystemExit(7)", encoding="utf-8")  # of the user's
    monkeypatch.chdir(tmp_path)
    ended = selfcheck._run(child_command(SMALL_MODEL, extra), 60.0)
    assert ended == selfcheck.Ended(0, "")


def test_the_real_child_says_in_one_line_what_it_cannot_load(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    ended = selfcheck._run(child_command(broken, True), 60.0)
    assert ended is not None and ended.status == 1 and str(broken) in ended.words


def test_a_load_asks_first_and_goes_by_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = backend.lib.llama_model_load_from_file

    def noting(path: bytes, params: object) -> object:
        asked.append(params.use_extra_bufts)  # type: ignore[attr-defined]
        return real(path, params)

    monkeypatch.setattr(backend.lib, "llama_model_load_from_file", noting)
    for answer in (False, True):
        monkeypatch.setattr(selfcheck, "extra_buffers", lambda answer=answer: answer)
        backend.load(LoadOptions(model=SMALL_MODEL, context_length=64)).close()
    assert asked == [False, True]


def test_a_crash_ends_a_load_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash() -> bool:
        raise EngineCrash("it died")

    monkeypatch.setattr(selfcheck, "extra_buffers", crash)
    monkeypatch.setattr(backend.lib, "llama_model_load_from_file", lambda *_: pytest.fail("loaded"))
    with pytest.raises(EngineCrash):
        backend.load(LoadOptions(model=SMALL_MODEL))


def test_what_is_remembered_lies_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "specpair"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
    assert cache_folder() == tmp_path / usual / "specpair"


def test_a_user_without_a_home_has_it_tried_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    tried = []
    for _ in range(2):
        assert extra_buffers(command=lambda model, extra: tried.append(extra) or [sys.executable, "-S", "-c", FINE])  # type: ignore[func-returns-value]
    assert tried == [True, True]


def test_at_setup_a_crash_is_told_and_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash() -> bool:
        raise EngineCrash("it died")

    monkeypatch.setattr(selfcheck, "extra_buffers", crash)
    assert selfcheck.main([]) == 1
    assert capsys.readouterr().err == "setup: it died\n"
    assert os.path.isfile(SMALL_MODEL)
