"""Runs a program that ends as soon as its parent process has ended, even if the parent crashed.

    python -m specpair.child_processes.children FD -m MODULE [ARGUMENT …]
    python -m specpair.child_processes.children FD -c CODE [ARGUMENT …]
    python -m specpair.child_processes.children FD -x PROGRAM [ARGUMENT …]    # one that is not written in Python

`FD` is the read end of a pipe that carries no data and whose write end only the parent has. End of file on it means
that the parent is gone, be it by SIGKILL. `specpair.child_processes.children` starts such processes."""

import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from specpair.command_line import start

_COMMANDS = ("drafter_client", "verifier_server")  # these handle Ctrl-C themselves once they are imported
_ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 15.0  # seconds between SIGTERM and SIGKILL


def _end_with_parent(pipe: int, programs: "list[subprocess.Popen[bytes]]", starting: threading.Lock) -> None:
    while os.read(pipe, 1):
        pass
    with starting:
        for program in programs:
            program.kill()
        os._exit(1)


def _end_when_asked(signals: int, program: "subprocess.Popen[bytes]") -> None:
    while os.read(signals, 1)[0] != signal.SIGTERM:
        pass
    program.terminate()


def _run(command: list[str], programs: "list[subprocess.Popen[bytes]]", starting: threading.Lock) -> int:
    """Run a program, and have SIGTERM end it. Returns its exit status.

    A thread reads the signals from a pipe. A handler alone would be too late for a signal that comes just before this
    thread begins to wait: it runs when the wait is over.
    """
    signals, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written)
    signal.signal(signal.SIGTERM, lambda *_: None)  # before the program runs, so that none is left behind
    with starting:  # else a parent that ends now would leave it behind
        programs.append(subprocess.Popen(command))
    threading.Thread(target=_end_when_asked, args=(signals, programs[0]), name="signals", daemon=True).start()
    return programs[0].wait()


def main() -> None:
    pipe, how, what, *arguments = sys.argv[1:]
    programs: list[subprocess.Popen[bytes]] = []
    starting = threading.Lock()
    threading.Thread(target=_end_with_parent, args=(int(pipe), programs, starting), name="parent", daemon=True).start()
    if how == "-x":
        sys.exit(_run([what, *arguments], programs, starting))
    sys.argv = [what, *arguments]
    if how == "-m":
        if what in _COMMANDS:
            start.die_by_interrupts()
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<child>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()


@contextmanager
def child(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    stdout: int | None = None,
    stderr: int | None = None,
    in_foreground: bool = False,
) -> Iterator["subprocess.Popen[str]"]:
    """Run `python ARGUMENTS` (`-m` and a module, or `-c` and code) while the block lasts, then end it.

    With `-x` and a path, another program.
    `environment`: the whole environment; this process's own by default.
    `descriptors`: open files that the child inherits under their numbers.
    `in_foreground`: Ctrl-C in the terminal reaches the child, and it may read from there.
    """
    watched, held = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "specpair.child_processes.children", str(watched), *arguments],
                cwd=_ROOT,
                env=environment,
                pass_fds=(watched, *descriptors),
                stdin=None if in_foreground else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                process_group=None if in_foreground else 0,
                text=True,
                errors="replace",
            )
        finally:
            os.close(watched)
        with process:
            try:
                yield process
            finally:
                end(process)
    finally:
        os.close(held)


def end(process: "subprocess.Popen[str]") -> None:
    """Send SIGTERM, and SIGKILL if the process does not end within its time."""
    process.terminate()
    try:
        process.wait(PATIENCE)
    except BaseException as error:  # also a second Ctrl-C
        process.kill()
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
