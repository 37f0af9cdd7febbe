"""Files that several processes may use at the same time: lock one, or replace one as a whole.

Windows has no such lock: use one process at a time there.
"""

import os
import shutil
import sys
import tempfile
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
    """A context that yields a new file, which takes the place of `path` at its end. If the context ends with an error,
    `path` stays as it was. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if path.exists():
            shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
