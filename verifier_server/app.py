"""The application that `uvicorn verifier_server.app:app` serves."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from backends.base import Backend
from speculation.errors import (
    InternalError,
    MethodNotAllowed,
    ModelLoading,
    NotFound,
    Overloaded,
    RequestError,
    RequestTimeout,
    ShuttingDown,
    SpecPairError,
    Unauthorized,
)
from verifier_server.api import docs_page, routes
from verifier_server.api.openapi import document
from verifier_server.process.open_files import allow_files
from verifier_server.process.shutdown import EndsQuietly, heard
from verifier_server.service import GRACE, Service
from verifier_server.settings import Settings, SettingsError, from_environment, refuse_workers

if TYPE_CHECKING:
    app: FastAPI

_log = logging.getLogger("specpair.verifier")
SWITCH_INTERVAL = 0.0005  # seconds; at the default of 5 ms a busy engine thread holds replies back that long


def create_app(
    settings: Settings,
    backend: Backend | None = None,
    on_failure: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    draft: Backend | None = None,
    after_failure: Callable[[], None] | None = None,
) -> FastAPI:
    """A verifier with `settings`; with a `backend` already loaded, or loading its own in the background.

    `on_failure` is called, from another thread, when the model could not be loaded, and has the process told to stop;
    `after_failure` is the last thing that the application does then. `clock`, in seconds, is what the scheduler goes
    by. `draft`: a draft model already loaded, for texts drafted here.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        allow_files(settings.max_sessions)
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL))
        if (warning := service.access.warning()) is not None:
            _log.warning("%s", warning)
        service.outbox.attach(asyncio.get_running_loop())
        service.start(on_failure)
        with heard(asyncio.get_running_loop(), service.begin_stop) as told:
            try:
                yield
            finally:
                service.stopping = told.leaves = True
                if told.numbers and not service.loaded_within(GRACE if len(told.numbers) == 1 else 0.0):
                    _log.warning("told to stop while the model loads: the verifier ends without waiting for it")
                    told.leave()
                service.stop()
            if service.failure is not None:
                _log.error("the verifier ends, for the model could not be loaded: %s", service.failure)
                if after_failure is not None:
                    after_failure()

    # Unlike FastAPI's own pages, ours load nothing from other hosts.
    app = FastAPI(title=document.TITLE, lifespan=lifespan, redirect_slashes=False, docs_url=None, redoc_url=None)
    keyed = settings.api_key is not None
    app.openapi = lambda: document.document(keyed)  # type: ignore[method-assign]
    app.state.service = service = Service(settings, backend, clock, draft)
    routes.add_to(app)
    docs_page.add_to(app)
    app.add_middleware(ShortCut)
    app.add_middleware(EndsQuietly, stopping=lambda: service.stopping)
    app.add_exception_handler(SpecPairError, _reply_error)
    app.add_exception_handler(HTTPException, _reply_http)
    app.add_exception_handler(Exception, _reply_unexpected)
    return app


class ShortCut:
    """Takes POST /verify past the router: matching and FastAPI's own handling cost more than the endpoint itself.

    The route exists all the same, for /docs and for other methods.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in ("/verify", "/verify/") and scope["method"] == "POST":
            request = Request(scope, receive)
            try:
                response = await routes.verify(request)
            except SpecPairError as error:
                response = await _reply_error(request, error)
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def _reply_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SpecPairError)
    headers = None
    if isinstance(error, ModelLoading | Overloaded | ShuttingDown):
        headers = {"Retry-After": str(error.details.get("retry_after", 1))}  # whole seconds
    elif isinstance(error, Unauthorized):
        headers = {"WWW-Authenticate": 'Bearer realm="specpair"'}
    elif isinstance(error, RequestTimeout):  # what is still to come of the body belongs to no request
        headers = {"Connection": "close"}
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def _reply_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known: SpecPairError
    if error.status_code == 405:
        known = MethodNotAllowed(f"{request.method} is not possible on {request.url.path}")
    elif error.status_code == 404:
        known = NotFound(f"there is nothing at {request.url.path}: see /docs for what there is")
    else:
        known = RequestError(str(error.detail))
    return JSONResponse(known.body(), status_code=error.status_code, headers=error.headers)


async def _reply_unexpected(_request: Request, error: Exception) -> Response:
    return await _reply_error(_request, InternalError(f"a fault of the verifier ({type(error).__name__}): see its log"))


def _stop_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _end_process() -> None:
    """With a status that supervisors take for a failure.

    uvicorn ends with the signal that it was told to stop by, which systemd, for one, takes for an end in good order.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STARTUP_FAILURE)


def _from_command_line() -> FastAPI:
    """The application by the environment; a bad setting ends the process with one line that names it."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:     %(message)s")
    try:
        refuse_workers()
        return create_app(from_environment(), on_failure=_stop_process, after_failure=_end_process)
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        raise SystemExit(STARTUP_FAILURE) from None  # of any other status, --workers would start it again and again


def __getattr__(name: str) -> FastAPI:
    # Made when uvicorn asks for it, so that importing this module never reads the environment.
    if name == "app":
        return _from_command_line()
    raise AttributeError(name)
