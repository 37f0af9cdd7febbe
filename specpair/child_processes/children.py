"""Starts child processes of measurements through `specpair.child_processes.child`, so that none outlives this one."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 15.0  # seconds between SIGTERM and SIGKILL


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
                [sys.executable, "-m", "specpair.child_processes.child", str(watched), *arguments],
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


def output(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run `python ARGUMENTS` and return its standard output. Raises CalledProcessError if it fails."""
    with child(*arguments, environment=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        written = process.stdout.read()
        status = process.wait()
    if status:
        raise subprocess.CalledProcessError(status, arguments, written)
    return written
