"""The verifier of the soak: a toy model whose text depends on every token, and checks of its bookkeeping all the time.

    VERIFIER_BACKEND=scripted .venv/bin/uvicorn --factory benchmarks.soak.verifier:application

takes the usual VERIFIER_… variables, and has one page more: `/soak` says what is held, and is a 500 with the reason
once the bookkeeping was inconsistent or something was logged as an error.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.responses import JSONResponse

from backends.scripted import Script
from benchmarks.soak.truth import CONTEXT, WholeContext
from verifier_server.app import create_app
from verifier_server.engine.scheduler import Inconsistent
from verifier_server.service import Service
from verifier_server.settings import from_environment

SCRIPT = Script(seed=1, end_bias=3.0, seconds_per_pass=0.002)
CHECK_EVERY = 0.05  # seconds


class Books(logging.Handler):
    """Checks a service's bookkeeping while it runs, and says what the service holds."""

    def __init__(self, service: Service) -> None:
        super().__init__(logging.ERROR)
        self._service = service
        self._checks = 0
        self._fault: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """What is logged as an error is a fault: an exception in a request or a callback, a pass that failed."""
        self._fault = self._fault or logging.Formatter().format(record)

    async def keep(self) -> None:
        """Check, again and again, until the first fault."""
        service = self._service
        await asyncio.to_thread(service._loader.join)
        while self._fault is None:
            try:
                await asyncio.to_thread(service.engine.check_integrity)
            except Inconsistent as error:
                self._fault = str(error)
            if any(session.gone for session in service.sessions._sessions.values()):
                self._fault = "the table holds a session that the engine was told to forget"
            self._checks += 1
            await asyncio.sleep(CHECK_EVERY)

    async def show(self) -> JSONResponse:
        """The counts of what is held."""
        service, engine = self._service, self._service.engine
        backend, queue = engine.backend, engine._scheduler._queue
        held = {
            "checks": self._checks,
            "sessions": len(service.sessions),
            "sequences": len(queue._sequences),
            "waiting": len(queue),
            "slots": sum(bool(backend.length(slot)) for slot in range(backend.rows)),
            "passes": engine._scheduler._passes,
            "tasks": len(asyncio.all_tasks()),
            "blocks": sys.getallocatedblocks(),  # of Python's own allocator: RSS without what the allocator keeps free
            "fault": self._fault or engine.failure,
        }
        return JSONResponse(held, status_code=200 if held["fault"] is None else 500)


def application() -> FastAPI:
    """A verifier by the environment, with the toy model and its bookkeeping checked."""
    settings = from_environment()
    options = settings.load_options()
    limits = {"context_length": CONTEXT, "max_batch_tokens": options.batch_tokens}
    app = create_app(settings, WholeContext(SCRIPT, rows=options.rows or 4, **limits))
    books = Books(app.state.service)
    app.add_api_route("/soak", books.show)
    for name in ("", "uvicorn"):  # whose records do not reach the root
        logging.getLogger(name).addHandler(books)
    serving = app.router.lifespan_context

    @asynccontextmanager
    async def checked(app: FastAPI) -> AsyncIterator[None]:
        async with serving(app):
            keeping = asyncio.create_task(books.keep())
            try:
                yield
            finally:
                keeping.cancel()

    app.router.lifespan_context = checked
    return app
