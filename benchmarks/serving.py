"""A verifier, or another application, as a process that listens on a socket which it was given.

The parent makes the socket, so it knows the port, and its requests wait there until this process answers them. When
the process ends before, they fail at once. Nothing is read out of a log.

    python -m benchmarks.serving FD MODULE:ATTRIBUTE    what `serve` starts
"""

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import uvicorn

from benchmarks.children import child, end

_PATIENCE = 60.0  # seconds until a server answers
_KEEP_ALIVE, _GRACE = 75, 5  # seconds; as the command `python -m verifier_server` has them
_LAST_LINES = 30


class NotUp(RuntimeError):
    """A server that did not answer; the message has the last lines of its log."""


@dataclass(frozen=True)
class Server:
    """A server in a process of its own, on a free loopback port."""

    process: "subprocess.Popen[str]"
    url: str


@contextmanager
def serve(
    application: str, environment: dict[str, str] | None = None, *, patience: float = _PATIENCE
) -> Iterator[Server]:
    """Serve `module:attribute` with uvicorn on a free loopback port while the block lasts.

    With the settings given and no others: what the user's own environment sets for a verifier is left out. The block
    begins when `/health` is answered, whatever the answer. Raises NotUp where it is not within `patience` seconds, and
    at once where the process ends before.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("VERIFIER_")}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, number = listener.getsockname()[1], listener.fileno()
        with child(
            *("-m", "benchmarks.serving", str(number), application),
            environment=inherited | (environment or {}),
            descriptors=[number],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            listener.close()  # the child has it: when that ends, requests fail
            log = _Log(process)
            try:
                _wait_for_answer(port, patience)
            except (OSError, http.client.HTTPException) as error:
                if not isinstance(error, TimeoutError):
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_GRACE)  # for its own status: it is ending
                end(process)
                log.join()
                raise NotUp(f"{application} {_fate(process, error, patience)}\n{log.text}") from error
            try:
                yield Server(process, f"http://127.0.0.1:{port}")
            finally:
                end(process)
                log.join()


class _Log:
    """Reads what a process writes, so that it never waits for a reader, and keeps the last lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._reader = threading.Thread(target=self._read, name="log", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(self._process.stdout)

    def join(self) -> None:
        """Once the process has ended: wait for its last line."""
        self._reader.join()

    @property
    def text(self) -> str:
        return "".join(self._lines) or "(it wrote nothing)\n"


def _wait_for_answer(port: int, patience: float) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
    try:
        connection.request("GET", "/health")
        connection.getresponse().read()
    finally:
        connection.close()


def _fate(process: "subprocess.Popen[str]", error: Exception, patience: float) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {patience:g} s; its log ends with"
    return f"ended with status {process.returncode} before it answered; its log ends with"


def main() -> None:
    number, application = sys.argv[1:]
    config = uvicorn.Config(
        application, access_log=False, timeout_keep_alive=_KEEP_ALIVE, timeout_graceful_shutdown=_GRACE
    )
    server = uvicorn.Server(config)
    server.run(sockets=[socket.socket(fileno=int(number))])
    if not server.started:
        sys.exit(3)


if __name__ == "__main__":
    main()
