"""Processes that measurements start: the one place for it, so that none is left behind.

Each runs a program of Python's through `benchmarks.child`, so it ends with this process, even where that is killed.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 15.0  # seconds that a process which was asked to end may take


@contextmanager
def child(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    stdout: int | None = None,
    stderr: int | None = None,
    in_foreground: bool = False,
) -> Iterator["subprocess.Popen[str]"]:
    """Run `python ARGUMENTS` (`-m` and a module, or `-c` and code) while the block lasts; then it is ended.

    `environment`: all of it; this process's own by default. `descriptors`: files that it inherits under their numbers.
    `in_foreground`: Ctrl-C in the terminal reaches it, too, and it may read from there. Others are ended in order.
    """
    watched, held = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.child", str(watched), *arguments],
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
    """Ask a process to end, and make it if it does not."""
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except BaseException as error:  # Ctrl-C once more, too
        process.kill()
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def output(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What `python ARGUMENTS` writes to its standard output. Raises CalledProcessError if it fails."""
    with child(*arguments, environment=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        status = process.wait()
    if status:
        raise subprocess.CalledProcessError(status, arguments, said)
    return said
