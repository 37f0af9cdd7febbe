"""A verifier in a process of its own that is ended, however roughly, and started again at the same address."""

import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from types import TracebackType

from benchmarks.children import child
from drafter_client.errors import VerifierUnreachable
from drafter_client.http.client import VerifierClient

_START = 120.0  # seconds
_PORTS = range(20_000, 30_000)  # no system gives these to outgoing connections by itself


class RestartedVerifier:
    """Use it in a `with` block, within which it runs at `url` but for when it is ended."""

    def __init__(self, application: str = "verifier_server.app:app", **settings: object) -> None:
        """`application` as for uvicorn; `settings` of the verifier by their lower-case names, others of its
        environment in capitals."""
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VERIFIER_")}
        self._environment = kept | {_variable(name): str(value) for name, value in settings.items()}
        self._command = ["-m", "uvicorn", application, "--port", str(self._port)]
        self._command += ["--no-access-log", "--timeout-keep-alive", "75"]
        self._open, self._running = ExitStack(), ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "RestartedVerifier":
        self._log = self._open.enter_context(tempfile.TemporaryFile())
        try:
            self.start()
            self.wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._open:
            self.end(signal.SIGTERM)

    def start(self) -> None:
        """Start it, without waiting for it."""
        log = self._log.fileno()
        started = child(*self._command, environment=self._environment, stdout=log, stderr=log)
        self._process = self._running.enter_context(started)

    def end(self, how: signal.Signals) -> None:
        """Send it a signal, and return when it is gone."""
        if self._process is not None:
            self._process.send_signal(how)
            with self._running:  # which sees to it that it ends
                process, self._process = self._process, None
                process.wait(30)

    def wait_until_ready(self) -> None:
        """Return when it serves its model. Raises RuntimeError with its log where it does not."""
        deadline = time.monotonic() + _START
        with closing(VerifierClient(self.url)) as client:
            while True:
                with suppress(VerifierUnreachable):
                    client.wait_until_ready()
                    return
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    self._log.seek(0)
                    raise RuntimeError("the verifier did not start:\n" + self._log.read().decode(errors="replace"))
                time.sleep(0.05)


def _variable(name: str) -> str:
    return name if name.isupper() else f"VERIFIER_{name.upper()}"


def _free_port() -> int:
    """One that nobody listens at, and that stays free while the verifier is away."""
    for port in random.sample(_PORTS, 100):
        with suppress(OSError), closing(socket.socket()) as tried:
            tried.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")
