"""A verifier whose model repeats what is said, slowly enough to do something in the middle; also as a process."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import httpx
import uvicorn

from tests.gateway.openai_api.parrot import Parrot
from tests.paths import ROOT
from verifier_server.app import create_app
from verifier_server.settings import Settings


class SlowParrot(Parrot):
    """A pass takes 5 ms. It says ESC by the character."""

    def __init__(self) -> None:
        super().__init__()
        self.script = replace(self.script, seconds_per_pass=0.005)

    def wanted(self, prompt: bytes) -> bytes:
        return super().wanted(prompt).replace(b"ESC", b"\x1b")


class Process:
    """A verifier in a process, on a port of its own, that can be killed and started again."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.terminal.slow_verifier", self._port], cwd=ROOT)

    def wait_until_ready(self) -> None:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False) as client:  # it backs off
            while self._process.poll() is None:
                with suppress(httpx.TransportError):
                    if client.get(f"{self.url}/health").json()["status"] == "ready":
                        return
        raise AssertionError("the verifier ended")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def process() -> Iterator[Process]:
    """A verifier in a process, which is killed at the end."""
    running = Process()
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()


if __name__ == "__main__":
    app = create_app(Settings(backend="scripted"), SlowParrot())
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, ws="none")
