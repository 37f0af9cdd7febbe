"""The application that `uvicorn verifier_server.app:app` serves, with its middleware."""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import click
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from gateway.anthropic_api.replies import error_form_of
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.tools.styles import style_named
from gateway.router.registration import registration_of
from specpair.command_line.start import keep_loaded_objects
from specpair.engines.backend import Backend
from specpair.http_service.app import App, HeadRequests, without_slash
from specpair.http_service.connection import Connection
from specpair.http_service.listening import KEEP_ALIVE, PATIENCE
from specpair.http_service.observability import logs
from specpair.http_service.observability.health import StateEndpoints, Supervisor
from specpair.http_service.replies.json_replies import Failures, NotedSend
from specpair.http_service.replies.static_files import StaticFiles
from specpair.http_service.shutdown import GRACE, end_by_sigterm, stop_signals
from specpair.http_service.web_pages import Hosts, Origins, read_hosts, read_origins
from specpair.protocol.errors import ShuttingDown
from verifier_server.api import document, operations
from verifier_server.api.live_events import LiveEvents
from verifier_server.api.openai_texts import VerifierSource
from verifier_server.engine.engine import SHUTTING_DOWN
from verifier_server.service import Service
from verifier_server.settings import Settings, SettingsError, from_environment

_log = logging.getLogger("specpair.verifier")
SPARE = 128  # files beside the sessions' connections: models, libraries, the listening socket, other connections
# Options of uvicorn, by the variables that it reads. A flag of the command goes before a variable.
UVICORN_OPTIONS = {
    "UVICORN_HTTP": f"{Connection.__module__}:{Connection.__name__}",
    "UVICORN_WS": "none",
    "UVICORN_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE),
    "UVICORN_TIMEOUT_GRACEFUL_SHUTDOWN": str(PATIENCE),
}


def allow_files(sessions: int) -> None:
    """Raise the soft limit of open files to the hard limit. Log a warning if `sessions` need more."""
    if sys.platform == "win32":
        return
    import resource  # exists on Unix only

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS allows less than its hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft != resource.RLIM_INFINITY and soft < sessions + SPARE:
        _log.warning(
            "at most %d files can be open, but %d sessions need %d: raise the limit (ulimit -Hn)",
            *(soft, sessions, sessions + SPARE),
        )


def restart_with_options() -> None:
    """If this process is uvicorn's command without `UVICORN_OPTIONS`, start the command again with them.

    An application cannot choose the class of its server's connections, but uvicorn takes its options from variables
    too.
    """
    context = click.get_current_context(silent=True)
    if context is None or context.command is not uvicorn.main:
        return
    missing = {name: value for name, value in UVICORN_OPTIONS.items() if name not in os.environ}
    if missing:
        os.environ.update(missing)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    end_by_sigterm()


def refuse_workers(arguments: Sequence[str] = sys.argv, environment: Mapping[str, str] = os.environ) -> None:
    """Raise SettingsError if more than one worker process is asked for.

    uvicorn imports the application in the workers alone, which it starts anew, and ends with status 0 without any. So
    the first worker ends uvicorn, by a signal that it does not handle, and the others say nothing. The first is told
    by its name: two that look for the supervisor at the same time both find it.
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
            if not multiprocessing.current_process().name.endswith("-1"):
                raise SystemExit(STARTUP_FAILURE)
            os.kill(supervisor.pid, signal.SIGALRM)
        raise SettingsError(
            f"--workers {count}: sessions and their KV caches live in one process, and a second one would not know "
            f"them. The command verifier --workers {count} serves HTTP in {count} processes, before the one with the "
            "model. For several copies of the model, run a verifier for each, behind specpair router"
        )


if TYPE_CHECKING:
    app: FastAPI

ENDS_WITHIN = 10.0  # seconds; open requests have less to finish
FAILURES = Failures("verifier", error_form_of)
SWITCH_INTERVAL = 0.0005  # seconds; with Python's default of 5 ms a busy engine thread delays replies by that much


def create_app(
    settings: Settings,
    backend: Backend | None = None,
    on_failure: Callable[[], object] = lambda: None,
    on_success: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    draft: Backend | None = None,
    after_failure: Callable[[], object] = lambda: None,
) -> App:
    """The application of a verifier with these `settings`.

    `backend`: a target model that is loaded already; None: the settings' model is loaded in the background.
    `draft`: the same for the draft model of server-side drafting.
    `clock`: the scheduler's, in seconds. If the model cannot be loaded, or the engine dies later, `on_failure` is
        called from the thread of the loader or the engine and should tell the process to stop; `after_failure` is
        called at the end of the application's shutdown. If it is loaded, `on_success` is called from the loader's
        thread.

    Raises SettingsError for a file of keys that cannot be read, and a router without what it wants to know.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        allow_files(settings.max_sessions)
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL))
        if (warning := service.gate.access.warning()) is not None:
            _log.warning("%s", warning)
        service.engine_client.attach(asyncio.get_running_loop())
        service.loader.start(on_failure, loaded)
        supervisor.start()
        if registration is not None:
            registration.start()
        draining = service.draining if settings.drain_seconds else None
        with stop_signals(asyncio.get_running_loop(), stop, draining) as received:
            try:
                yield
            finally:
                if registration is not None:
                    await registration.stop()
                endpoints.close()
                service.stopping = received.app_ending = True
                cannot_listen = received.heard and not received.numbers  # uvicorn has logged why
                if cannot_listen and not service.loader.wait(0.0):
                    after_failure()
                if received.heard and not service.loader.wait(GRACE if len(received.numbers) < 2 else 0.0):
                    _log.warning("asked to stop while the model loads: stopping without waiting for the load")
                    received.end_process()
                service.stop()
                supervisor.end()
            if service.failure is not None:  # it has been logged
                after_failure()

    def loaded() -> None:
        if not service.loader.stopping:
            supervisor.tell("READY=1", "STATUS=the model is loaded")
        on_success()

    def stop() -> None:
        supervisor.tell("STOPPING=1")
        service.begin_stop()

    registration = registration_of(settings, settings.key)
    service = Service(settings, backend, clock, draft)
    supervisor = Supervisor(service.works)
    gate = service.gate
    app = App(document.TITLE, lifespan, lambda: document.document(gate.access.keyed))
    app.state.service = service
    source = VerifierSource(service)
    endpoints = Endpoints(source, style_named(settings.tool_style), keep_lines=settings.keep_lines)
    service.texts_full = lambda: endpoints.places.full
    registry, metrics_open = service.metrics.registry, settings.metrics_open
    state = StateEndpoints(gate, registry, service.condition, lambda: (service.health(), {}), metrics_open)
    operations.add_to(app, state, LiveEvents(service), endpoints, source)
    page = StaticFiles("verifier_server", "page")
    page.add_to(app)
    app.add_middleware(HeadRequests)
    app.add_middleware(CancellableRequests, stopping=lambda: service.stopping)
    FAILURES.add_to(app)
    origins = Origins(read_origins(settings.cors_origins), settings.key("cors_origins"))
    hosts = Hosts(read_hosts(settings.allowed_hosts), settings.key("allowed_hosts"))
    paths, access_log = [*document.SERVICE.paths, *page.paths], settings.access_log
    app.add_layers(gate, origins, hosts, service.metrics, paths, access_log, strict=settings.strict)
    app.serve_directly(operations.VERIFY, FAILURES)
    return app


class CancellableRequests:
    """Middleware: each path works with a trailing slash, too. A request that is cancelled during shutdown gets a reply
    if possible, and is not logged as a fault."""

    def __init__(self, app: ASGIApp, stopping: Callable[[], bool]) -> None:
        self._app, self._stopping = app, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_or_end() -> Message:
            try:
                return await receive()
            except asyncio.CancelledError:  # on a forced stop, uvicorn cancels the lifespan
                return {"type": "lifespan.shutdown"}

        if scope["type"] == "lifespan":
            await self._app(scope, receive_or_end, send)
            return
        noted = NotedSend(send)
        try:
            await self._app(without_slash(scope) if scope["type"] == "http" else scope, receive, noted)
        except asyncio.CancelledError:
            if not self._stopping():
                raise
            if not noted.begun:
                reply = await FAILURES.failed(Request(scope), ShuttingDown(SHUTTING_DOWN))
                reply.headers["Connection"] = "close"
                await reply(scope, receive, send)


def stop_process(status: int) -> None:
    """Tell the process to stop, as Ctrl-C does: texts know that they have failed. After `ENDS_WITHIN` seconds it ends
    with `status` in any case, as what has failed may also keep the model from being freed."""
    late = threading.Timer(ENDS_WITHIN, os._exit, [status])
    late.daemon = True
    late.start()
    os.kill(os.getpid(), signal.SIGINT)


def _from_command_line() -> FastAPI:
    """The application with settings from the environment. A bad setting ends the process with one line naming it."""

    def end_process() -> None:  # uvicorn would end with the signal that stopped it, which to systemd is a success
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(STARTUP_FAILURE)

    logs.configure("text")  # until the settings are read
    try:
        refuse_workers()
        restart_with_options()
        settings = from_environment()
        logs.configure(settings.log_format)
        return create_app(
            settings,
            on_failure=partial(stop_process, STARTUP_FAILURE),
            on_success=keep_loaded_objects,
            after_failure=end_process,
        )
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        raise SystemExit(STARTUP_FAILURE) from None  # with another status, --workers would restart it for ever


def __getattr__(name: str) -> FastAPI:
    # Created on access, so that importing this module does not read the environment.
    if name == "app":
        return _from_command_line()
    raise AttributeError(name)
