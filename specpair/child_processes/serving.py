"""Serves an application in a process of its own, on a socket that the parent opened.

So the parent knows the port, and requests wait in the socket until the server answers. If the server's process ends
before, they fail at once. Nothing is read out of a log.

    python -m specpair.child_processes.serving FD MODULE:APPLICATION    # what `serve` starts
"""

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn

from specpair.child_processes.children import child, end

_PATIENCE = 60.0  # seconds until a server answers
_KEEP_ALIVE, _GRACE = 75, 5  # seconds; the same as in the command `python -m verifier_server`
_LAST_LINES = 30


class NotUp(RuntimeError):
    """A server did not answer. The message quotes the last lines of its log."""


@dataclass(frozen=True)
class Server:
    """A server in a process of its own, on a loopback port."""

    process: "subprocess.Popen[str]"
    url: str


def verifier(application: str = "verifier_server.app:app", **settings: object) -> AbstractContextManager[Server]:
    """Serve a verifier with these settings (see `variables`)."""
    return serve(application, variables(**settings))


def variables(**settings: object) -> dict[str, str]:
    """The environment of a verifier, which ends at once unless it is given another `drain_seconds`.

    `settings`: the verifier's by their lower-case names, other variables in capitals.
    """
    settings = {"drain_seconds": 0, **settings}
    return {key if key.isupper() else f"VERIFIER_{key.upper()}": str(value) for key, value in settings.items()}


@contextmanager
def serve(
    application: str, environment: dict[str, str] | None = None, *, patience: float = _PATIENCE, port: int = 0
) -> Iterator[Server]:
    """Serve `module:application` or `module:factory()` with uvicorn on a loopback port (0: any) while the block lasts.

    The server gets `environment` and this process's variables, but none of the user's own VERIFIER_ settings. The
    block begins when `/health` is answered, with whatever status. Raises NotUp after `patience` seconds without an
    answer, or as soon as the process ends.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("VERIFIER_")}
    with socket.create_server(("127.0.0.1", port)) as listener:
        port, number = listener.getsockname()[1], listener.fileno()
        with child(
            *("-m", "specpair.child_processes.serving", str(number), application),
            environment=inherited | (environment or {}),
            descriptors=[number],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            listener.close()  # only the child holds the socket now, so requests fail when the child ends
            lines: deque[str] = deque(maxlen=_LAST_LINES)
            assert process.stdout is not None
            reader = threading.Thread(target=lines.extend, args=(process.stdout,), name="log", daemon=True)
            reader.start()
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=patience)) as connection:
                    connection.request("GET", "/health")
                    connection.getresponse().read()
            except (OSError, http.client.HTTPException) as error:
                if timed_out := isinstance(error, TimeoutError):
                    reason = f"did not answer within {patience:g} s"
                else:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_GRACE)  # it is ending: wait for its own exit status
                end(process)
                reader.join()
                if not timed_out:
                    reason = f"ended with status {process.returncode} before it answered"
                log = "".join(lines) or "(it wrote nothing)\n"
                raise NotUp(f"{application} {reason}; its log ends with\n{log}") from error
            try:
                yield Server(process, f"http://127.0.0.1:{port}")
            finally:
                end(process)
                reader.join()


def main() -> None:
    number, application = sys.argv[1:]
    name, factory = application.removesuffix("()"), application.endswith("()")
    how: dict[str, Any] = {
        "access_log": False,
        "timeout_keep_alive": _KEEP_ALIVE,
        "timeout_graceful_shutdown": _GRACE,
    }
    server = uvicorn.Server(uvicorn.Config(name, factory=factory, **how))
    server.run(sockets=[socket.socket(fileno=int(number))])
    if not server.started:
        sys.exit(3)


if __name__ == "__main__":
    main()
