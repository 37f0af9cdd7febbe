"""The verifier of the soak: its text depends on every token before it, and its books are checked all the time.

    VERIFIER_BACKEND=scripted .venv/bin/uvicorn benchmarks.soak_verifier:app

takes the usual VERIFIER_… variables, and has one page more: `/soak` says what is held, and is a 500 with the reason
once the books did not add up, or something was logged as an error.
"""

import asyncio
import functools
import hashlib
import logging
import struct
import sys
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
from fastapi import FastAPI
from starlette.responses import JSONResponse

from backends.base import Logits
from backends.scripted import BEGIN, END, Script, ScriptedBackend
from verifier_server.app import create_app
from verifier_server.engine.scheduler import Inconsistent
from verifier_server.service import Service
from verifier_server.settings import from_environment

if TYPE_CHECKING:
    app: FastAPI

SCRIPT = Script(seed=1, end_bias=3.0, seconds_per_pass=0.002)
CHECK_EVERY = 0.05  # seconds
_log = logging.getLogger("specpair.soak")


class WholeContext(ScriptedBackend):
    """Says what all tokens before decide, not only the last few: one wrong token anywhere in a row is another text."""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        digest = hashlib.blake2b(array("H", tokens).tobytes(), digest_size=16).digest()
        source = np.random.default_rng([self.script.seed, *struct.unpack("<4I", digest)])
        logits = np.full(self.vocabulary.size, -np.inf, dtype=np.float32)
        logits[: END + 1] = source.standard_normal(END + 1) * self.script.sharpness
        logits[BEGIN] = -np.inf
        logits[END] += self.script.end_bias
        return logits


class Books:
    """Has a service's books checked while it runs, and says what it holds."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._checks = 0
        self._fault: str | None = None

    def note(self, record: logging.LogRecord) -> None:
        """What is logged as an error is one: an exception in a request or a callback, a pass that failed."""
        if record.levelno >= logging.ERROR and self._fault is None:
            self._fault = logging.Formatter().format(record)

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
        _log.critical("something is wrong: %s", self._fault)

    async def show(self) -> JSONResponse:
        """What is held, and by how many."""
        service, engine = self._service, self._service.engine
        backend, queue = engine.backend, engine._scheduler._queue
        held = {
            "checks": self._checks,
            "sessions": len(service.sessions),
            "texts": service.texts.under_way,
            "seats": len(queue._sequences),
            "waiting": len(queue),
            "rows": sum(bool(backend.length(row)) for row in range(backend.rows)),
            "passes": engine._scheduler._passes,
            "tasks": len(asyncio.all_tasks()),
            "blocks": sys.getallocatedblocks(),  # of Python's own allocator: what RSS says without what it keeps free
            "fault": self._fault or engine.failure,
        }
        return JSONResponse(held, status_code=200 if held["fault"] is None else 500)


class _Noting(logging.Handler):
    """Shows what is logged to those who keep the books."""

    def __init__(self, books: Books) -> None:
        super().__init__()
        self._books = books

    def emit(self, record: logging.LogRecord) -> None:
        self._books.note(record)


@functools.cache
def application() -> FastAPI:
    """A verifier by the environment, with the soak's toy model and its books kept."""
    settings = from_environment()
    options = settings.load_options()
    script = SCRIPT if options.model is None else Script(seed=int(options.model.name), end_bias=SCRIPT.end_bias)
    toy = WholeContext(
        script,
        rows=options.rows or 4,
        context_length=options.context_length or 1024,
        max_batch_tokens=options.batch_tokens,
    )
    app = create_app(settings, toy)
    books = Books(app.state.service)
    app.add_api_route("/soak", books.show)
    for name in ("", "uvicorn"):  # which hands nothing on
        logging.getLogger(name).addHandler(_Noting(books))
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


def __getattr__(name: str) -> FastAPI:
    # Made when uvicorn asks for it, so that importing this module reads no environment.
    if name == "app":
        return application()
    raise AttributeError(name)
