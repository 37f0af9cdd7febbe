"""Compiled programs are kept, and found by the next start; no process that compiles outlives the one that loads."""

import logging
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backends.neuron_legacy.compiling import forget_failures
from specpair.engines.errors import ModelLoadError
from tests.backends.neuron_legacy.conftest import Load
from tests.paths import ROOT

pytestmark = pytest.mark.engine("torch")  # the stand-in needs torch


def test_second_start_loads_the_programs(load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "specpair")
    cache = tmp_path / "kept"
    load(compile_cache=cache)
    assert "tiny: 7 programs to compile" in caplog.text and f"they are kept in {cache}" in caplog.text
    caplog.clear()
    load(compile_cache=cache)
    assert "to compile" not in caplog.text
    assert f"tiny: 7 programs found compiled in {cache / 'tiny-'}" in caplog.text
    load(compile_cache=cache, slots=3)
    assert "tiny: 7 programs to compile" in caplog.text, "other settings need other programs"


def test_programs_that_do_not_fit_are_compiled_again(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "kept"
    load(compile_cache=cache)
    [folder] = [path for path in cache.iterdir() if path.is_dir() and path.name.startswith("tiny-")]
    files = sorted(path.name for path in folder.iterdir())
    (folder / files[0]).unlink()
    backend = load(compile_cache=cache)
    assert f"the programs in {folder} do not fit and are compiled again: Could not find" in caplog.text
    [folder] = [path for path in cache.iterdir() if path.is_dir() and path.name.startswith("tiny-")]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert backend.context_length == 127


def test_damaged_programs_are_an_error_that_names_the_folder(
    load: Load, library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "kept"
    load(compile_cache=cache)
    [folder] = [path for path in cache.iterdir() if path.is_dir() and path.name.startswith("tiny-")]
    before = sorted(folder.iterdir())

    def fails(self: Any) -> None:
        raise RuntimeError("nrt_load failed")

    monkeypatch.setattr(library.LlamaForSampling, "to_neuron", fails)
    with pytest.raises(ModelLoadError) as caught:
        load(compile_cache=cache)
    assert str(caught.value) == (
        f"transformers-neuronx could not run the programs kept in {folder}: RuntimeError: nrt_load failed; if they may "
        "be damaged, delete this folder: they are compiled again then"
    )
    assert sorted(folder.iterdir()) == before


def test_compiler_tries_again_what_failed(tmp_path: Path) -> None:
    """A program's folder after a failure, a success, and during a compilation."""
    for name, files in (("failed", ("model.log",)), ("made", ("model.log", "model.neff")), ("begun", ())):
        made = tmp_path / "neuronx-cc" / "neuronxcc-2.21" / f"MODULE_{name}"
        made.mkdir(parents=True)
        for file in ("model.hlo_module.pb", *files):
            (made / file).touch()
    forget_failures(None)
    forget_failures(tmp_path)
    left = (tmp_path / "neuronx-cc" / "neuronxcc-2.21").iterdir()
    assert sorted(path.name for path in left) == ["MODULE_begun", "MODULE_made"]
    forget_failures(tmp_path / "none")


# As the library compiles: forked workers, each of which runs a compiler. All have the write end of the test's pipe, and
# the compilers say there that they have started.
PROGRAM = """
import os, signal, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from backends.neuron_legacy.compiling import ending_with_this_process

written, how = int(sys.argv[1]), sys.argv[2]
first, started = os.pipe()
signal.signal(signal.SIGTERM, lambda *_: os._exit(3) if how == "handled" else None)

def compile(number):
    if how == "broken" and number == 1:
        os.read(first, 1)
        os.kill(os.getpid(), signal.SIGKILL)
    code = f"import os, signal; os.write({written}, b'c'); os.write({started}, b'c'); signal.pause()"
    subprocess.run([sys.executable, "-c", code], pass_fds=[written, started])

with ending_with_this_process(), ProcessPoolExecutor(2, get_context("fork")) as executor:
    for future in [executor.submit(compile, number) for number in range(4)]:
        future.result()
"""


@contextmanager
def compiling_program(how: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """The program above, and the read end of the pipe."""
    read, written = os.pipe()
    try:
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, str(written), how],
            cwd=ROOT,
            pass_fds=[written],
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        ) as process:
            os.close(written)
            yield process, read
    finally:
        os.close(read)


def receive(read: int) -> bytes:
    """What comes out of the pipe next; nothing at its end: when no process has its other end any more."""
    with selectors.DefaultSelector() as selector:
        selector.register(read, selectors.EVENT_READ)
        assert selector.select(60), "a process lives on"
    return os.read(read, 1)


@pytest.mark.parametrize(
    ("how", "number"), [("killed", signal.SIGKILL), ("handled", signal.SIGTERM), ("interrupted", signal.SIGINT)]
)
def test_compilers_end_with_the_process(how: str, number: signal.Signals) -> None:
    with compiling_program(how) as (process, read):
        assert receive(read) + receive(read) == b"cc"
        os.killpg(process.pid, number)
        if number == signal.SIGINT:  # Python's executor waits for its workers before the exception leaves the block
            process.kill()
        assert receive(read) == b""


def test_workers_can_be_ended_when_one_was_killed() -> None:
    """Python ends the others by SIGTERM, for which the process may have a handler of its own."""
    with compiling_program("broken") as (process, read):
        assert receive(read) == b"c"
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert "BrokenProcessPool" in process.stderr.read()
        assert receive(read) == b""
