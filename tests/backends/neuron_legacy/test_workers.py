"""The processes that compile end with the process that asked for them, however it ends, and so do their compilers."""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import pytest

from backends.neuron_legacy import compiling
from tests.paths import ROOT

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


def test_other_processes_are_left_alone() -> None:
    before = os.listdir("/dev/fd")
    with compiling.ending_with_this_process():
        pass
    assert os.listdir("/dev/fd") == before
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(written, b"same" if os.getpgid(0) == os.getpgid(os.getppid()) else b"moved")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"same"
    os.close(read)
    os.close(written)


def test_as_many_workers_as_memory_and_cores_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "cores", lambda: 8)
    for available, count in ((2**30, 1), (20 * 2**30, 2), (500 * 2**30, 8)):
        monkeypatch.setattr(compiling, "available_bytes", lambda available=available: available)
        assert compiling.workers_for(32, 13) == count
    assert compiling.workers_for(32, 5) == 5


@pytest.mark.parametrize(
    ("error", "lacked"),
    [
        (BrokenProcessPool("A process in the process pool was terminated abruptly"), True),
        (RuntimeError("[F137] neuronx-cc was forcibly killed - This most commonly occurs due to"), True),
        (RuntimeError("[NCC_EVRF001] unsupported operator"), False),
    ],
)
def test_killed_compilers_are_recognised(error: Exception, lacked: bool) -> None:
    assert compiling.lacked_memory(error) == lacked
