"""Raises the limit of open files: each connection takes one, and a shell's soft limit is often too low."""

import logging
import sys

_log = logging.getLogger("specpair.verifier")
SPARE = 128  # files beside the sessions' connections: models, libraries, the listening socket, other connections


def allow_files(sessions: int) -> None:
    """Raise the soft limit of open files to the hard limit; log a warning if that is too low for `sessions`."""
    if sys.platform == "win32":
        return
    import resource  # exists on Unix only

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:  # macOS allows less than its hard limit
            _log.info("the limit of open files stays at %d: %s", soft, error)
    if soft != resource.RLIM_INFINITY and soft < sessions + SPARE:
        _log.warning(
            "at most %d files can be open, but %d sessions need %d: raise the limit (ulimit -Hn)",
            *(soft, sessions, sessions + SPARE),
        )
