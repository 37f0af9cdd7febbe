"""Fixtures with a verifier on a real socket and the scripted model."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Backend
from specpair.http_service import connection
from specpair.http_service.listening import ListeningServer
from specpair.http_service.observability import logs
from verifier_server import program
from verifier_server.app import create_app
from verifier_server.fronts.channel import Channel, first_message
from verifier_server.fronts.front import Front, FrontOptions
from verifier_server.fronts.fronts import fronts_of
from verifier_server.service import Service
from verifier_server.settings import ListenAddress, Settings

SCRIPT = Script(seed=2)


def config_of(app: ASGIApp) -> uvicorn.Config:
    """uvicorn's configuration; it takes the client's address from X-Forwarded-For, as behind a proxy here."""
    http = connection.Connection
    return uvicorn.Config(app, http=http, log_config=None, access_log=False, timeout_graceful_shutdown=5)


@contextmanager
def front_in_thread(end: socket.socket, listening: Sequence[int]) -> Iterator[None]:
    """A front in a thread of this process."""
    end, sockets = end.dup(), [socket.socket(fileno=os.dup(number)) for number in listening]
    options: FrontOptions = first_message(end)

    def stop() -> None:
        running.should_exit = True

    front = Front(options, partial(Channel.over, end), stop)
    running = ListeningServer(config_of(front), None)
    thread = threading.Thread(target=running.run, args=(sockets,))
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(20)
        assert not thread.is_alive(), "the front did not stop"


class LiveServer:
    """A verifier in a thread. Its port is bound before the thread starts, so that requests never come too early."""

    fronts = 0  # that serve HTTP before it, each in a thread

    def __init__(
        self,
        settings: Settings,
        backend: Backend | None,
        clock: Callable[[], float] = time.perf_counter,
        draft: Backend | None = None,
    ) -> None:
        self.failed = threading.Event()  # whether the process would end, as no text can be written any more
        loaded = list[Callable[[], object]]()
        self.app = create_app(
            settings, backend, self.failed.set, lambda: [each() for each in loaded], clock=clock, draft=draft
        )
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self.url = f"http://127.0.0.1:{self.address[1]}"
        fronts = None
        if self.fronts:
            address = ListenAddress(workers=self.fronts)
            fronts = fronts_of(self.app, settings, address, self.failed.set, front_in_thread)
            loaded.append(fronts.loaded)
        self._server = ListeningServer(config_of(self.app), None, accepting=fronts)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        self.http = self.client()

    @property
    def service(self) -> Service:
        service: Service = self.app.state.service
        return service

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20, trust_env=False, **options)

    def wait_until_ready(self) -> None:
        self.http.get("/health")  # answered once the loader was started
        assert self.service.loader.wait(60.0), "the model was never loaded"

    def post(self, path: str, body: Any, **options: Any) -> Any:
        """Send a request that must succeed. Returns its JSON reply."""
        response = self.http.post(path, json=body, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def close(self) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not stop"


Serve = Callable[..., LiveServer]


def settings(**given: Any) -> Settings:
    return Settings(backend="scripted", **given)


@pytest.fixture(autouse=True)
def _clients_that_have_left_are_noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server asks after a second whether a client that has closed its side still listens."""
    monkeypatch.setattr(connection, "PROBES", (0.05, 0.05))


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """One verifier for all tests of a file, with two KV cache slots, so that sessions have to share."""
    backend = ScriptedBackend(SCRIPT, slots=2, context_length=512, max_batch_tokens=128)
    live = LiveServer(settings(max_body_bytes=65536), backend)
    live.wait_until_ready()
    yield live
    live.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts verifiers for one test: `serve(backend, max_sessions=1, …)`."""
    running: list[LiveServer] = []

    def start(
        backend: Backend | None = None,
        *,
        wait: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        draft: Backend | None = None,
        **given: Any,
    ) -> LiveServer:
        running.append(LiveServer(settings(**given), backend, clock, draft))
        if wait:
            running[-1].wait_until_ready()
        return running[-1]

    yield start
    for live in running:
        live.close()


class Ended(NamedTuple):
    """A program that has ended."""

    status: int | str | None
    out: str
    err: str


Program = Callable[..., Ended]


@pytest.fixture
def verifier(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs the program `verifier` in this process, where it ends before it serves: `verifier("--slots", "two")`.

    Further arguments are variables of the environment, which has no other ones of ours.
    """

    def run(*arguments: str, main: Callable[[], object] = program.main, **variables: str) -> Ended:
        with monkeypatch.context() as patch:
            for name in os.environ:
                if name.startswith(("VERIFIER_", "UVICORN_", "SPECPAIR_")):
                    patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["verifier", *arguments])
            patch.setattr(logs, "configure", lambda _: None)  # it changes the handlers of this process
            try:
                status: Any = main()
            except SystemExit as error:
                status = error.code
        return Ended(status, *capsys.readouterr())

    return run
