"""A verifier that is ended by signals while texts are written through it, and started again at the same address."""

import random
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

from specpair.child_processes.serving import Server, serve

_DOWN = 1.0  # seconds that the verifier is away at most, beside the time that it takes to start
_PORTS = range(20_000, 30_000)  # the system gives none of these to outgoing connections


class RestartedVerifier:
    """A verifier at one address that can be ended by a signal and started again. Runs within a `with` block."""

    def __init__(self, application: str, environment: dict[str, str]) -> None:
        """`application` and `environment` as for `serve`."""
        self._application, self._environment = application, environment
        self._port = _free_port()
        self._running = ExitStack()
        self._server: Server | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "RestartedVerifier":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def start(self) -> None:
        """Start the verifier; returns when it answers `/health`. Raises NotUp."""
        self._server = self._running.enter_context(serve(self._application, self._environment, port=self._port))

    def end(self, how: signal.Signals) -> None:
        """Send the signal and return when the process is gone."""
        assert self._server is not None
        self._server.process.send_signal(how)
        self._server.process.wait(30)
        self._running.close()


def _free_port() -> int:
    """A port that is free now and stays free while the verifier is away."""
    for port in random.sample(_PORTS, 100):
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port
    raise RuntimeError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


class Chaos:
    """Ends a verifier when so many tokens have arrived, and starts it again."""

    def __init__(self, verifier: RestartedVerifier, at: Sequence[int], seed: int) -> None:
        """`at`: the numbers of tokens, ascending."""
        self._verifier, self._at = verifier, list(at)
        self._random = random.Random(seed)
        self._count = threading.Condition()
        self._tokens = 0
        self._over = False
        self.ended: list[tuple[int, str]] = []  # at how many tokens, and by which signal

    def arrived(self, tokens: int) -> None:
        """So many more tokens have arrived, of any text. May be called from any thread."""
        with self._count:
            self._tokens += tokens
            self._count.notify()

    @contextmanager
    def running(self) -> Iterator[None]:
        """End and start the verifier while the block runs."""
        with ThreadPoolExecutor(1, thread_name_prefix="chaos") as pool:
            running = pool.submit(self._run)
            try:
                yield
            finally:
                with self._count:
                    self._over = True
                    self._count.notify()
                running.result()

    def _run(self) -> None:
        signals = [[signal.SIGKILL, signal.SIGTERM][number % 2] for number in range(len(self._at))]
        self._random.shuffle(signals)
        for at, how in zip(self._at, signals, strict=True):
            with self._count:
                self._count.wait_for(lambda at=at: self._over or self._tokens >= at)  # type: ignore[misc]
                if self._over:
                    return
                self.ended.append((self._tokens, how.name))
            self._verifier.end(how)
            time.sleep(self._random.uniform(0.0, _DOWN))
            self._verifier.start()
