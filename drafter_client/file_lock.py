"""A file for one writer at a time, among all processes. On Windows for whoever asks: one process there, please."""

import sys

if sys.platform != "win32":
    import fcntl


def take(descriptor: int, *, wait: bool) -> bool:
    """Whether the open file is this descriptor's alone, until it is closed or the process dies.

    `wait`: until the one before has given it back. Raises OSError where the file system has no locks.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
