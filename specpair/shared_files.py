"""Locks or replaces files that several processes may use at the same time.

Windows has no such lock: use one process at a time there.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

PRIVATE = 0o600  # the mode of files of the owner alone


def lock(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file until its descriptor is closed or the process ends. Returns whether it was locked.

    `wait`: if another process holds the lock, wait until it is released; otherwise return False.

    Raises OSError if the file system has no locks. On Windows the result is always True, without a lock.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """A context that one process at a time is in, for changes of a file. The lock is a file beside it. Raises
    OSError."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, PRIVATE)
    try:
        lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A context that yields a new file, which takes the place of `path` at its end, with its permissions; those of a
    new one are `mode`, less what the user's umask takes. If the context ends with an error, `path` stays as it was.
    Raises OSError."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    opened = partial(os.open, mode=mode)
    file = open(name, "xb", opener=opened)  # noqa: SIM115, as it is closed before it is renamed
    try:
        with file:
            yield file
        if path.exists():
            shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
