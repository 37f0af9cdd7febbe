"""Lock a file of results or of traces against other processes. Windows has no lock: use one process at a time there."""

import sys

if sys.platform != "win32":
    import fcntl


def take(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file until its descriptor is closed or the process ends. Returns whether it was locked.

    `wait`: if another process holds the lock, wait until it is released; otherwise return False. Raises OSError if the
    file system has no locks. On Windows the result is always True, without a lock.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
