"""Lock a file against other processes. On Windows there is no lock: use one process at a time there."""

import sys

if sys.platform != "win32":
    import fcntl


def take(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file until its descriptor is closed or the process ends. Returns whether it was locked.

    `wait`: wait until another lock on the file is released; otherwise return False. Raises OSError if the file system
    has no locks. Windows: always True, without a lock.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
