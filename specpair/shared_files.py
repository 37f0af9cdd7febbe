"""Locks or replaces files that several processes may use at the same time.

Windows has no such lock: use one process at a time there.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl


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
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A context that yields a new file, which takes the place of `path` at its end, with its permissions; those of a
    new one are as the user's umask has them. If the context ends with an error, `path` stays as it was. Raises
    OSError."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    file = open(name, "xb")  # noqa: SIM115, as it is closed before it is renamed
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
