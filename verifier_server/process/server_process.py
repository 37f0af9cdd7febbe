"""The process of the service: its limit of open files, and the command `uvicorn verifier_server.app:app`."""

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import click
import uvicorn
from uvicorn.config import STARTUP_FAILURE

from specpair.http_service.connection import Connection
from specpair.http_service.listening import KEEP_ALIVE, PATIENCE
from specpair.http_service.shutdown import end_by_sigterm
from verifier_server.settings import SettingsError

_log = logging.getLogger("specpair.verifier")
SPARE = 128  # files beside the sessions' connections: models, libraries, the listening socket, other connections
# Options of uvicorn, by the variables that it reads. A flag of the command goes before a variable.
OPTIONS = {
    "UVICORN_HTTP": f"{Connection.__module__}:{Connection.__name__}",
    "UVICORN_WS": "none",
    "UVICORN_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE),
    "UVICORN_TIMEOUT_GRACEFUL_SHUTDOWN": str(PATIENCE),
}


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


def start_anew(
    environment: MutableMapping[str, str] = os.environ,
    execute: Callable[[str, list[str]], None] = os.execv,
) -> None:
    """Replace this process by the same command with `OPTIONS`, if it is uvicorn's command without them.

    An application cannot choose the class of its server's connections, but uvicorn takes its options from variables
    too. `execute` does not return.
    """
    context = click.get_current_context(silent=True)
    if context is None or context.command is not uvicorn.main:
        return
    missing = {name: value for name, value in OPTIONS.items() if name not in environment}
    if missing:
        environment.update(missing)
        execute(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    end_by_sigterm()


def refuse_workers(arguments: Sequence[str] = sys.argv, environment: Mapping[str, str] = os.environ) -> None:
    """Raise SettingsError if more than one worker process is asked for.

    uvicorn imports the application in the workers alone, which it starts anew, and ends with status 0 without any. So
    the first worker ends uvicorn, by a signal that it does not handle, and the others say nothing.
    """
    count = environment.get("UVICORN_WORKERS") or environment.get("WEB_CONCURRENCY", "1")
    for at, argument in enumerate(arguments):
        if argument in ("--workers", "-w") and at + 1 < len(arguments):
            count = arguments[at + 1]
        elif argument.startswith("--workers="):
            count = argument.partition("=")[2]
    if count.isdecimal() and int(count) > 1:
        supervisor = multiprocessing.parent_process()
        if supervisor is not None and supervisor.pid is not None:
            if os.getppid() != supervisor.pid:
                raise SystemExit(STARTUP_FAILURE)
            os.kill(supervisor.pid, signal.SIGALRM)
        raise SettingsError(
            f"--workers {count}: sessions and their KV caches live in one process, and a second one would not know "
            "them. Run one verifier per model copy on its own port, and let a proxy route on the X-Session-Id header"
        )
