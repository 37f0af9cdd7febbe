"""The soak's verifier: its toy model, and checks of its bookkeeping all the time.

    VERIFIER_BACKEND=scripted .venv/bin/uvicorn --factory lab.benchmarks.faults.soak_verifier:application

takes the usual VERIFIER_… variables, and has one page more: `/soak` says what is held, and is a 500 with the reason
once the bookkeeping was inconsistent or something was logged as an error. The checks begin when it is first asked.
"""

import asyncio
import hashlib
import logging
import struct
from array import array
from collections.abc import Sequence

import numpy as np
from fastapi import FastAPI
from starlette.responses import JSONResponse

from backends.scripted import BEGIN, END, Script, ScriptedBackend
from specpair.engines.backend import Logits
from verifier_server.app import create_app
from verifier_server.engine.engine import Engine
from verifier_server.engine.scheduler import Inconsistent
from verifier_server.service import Service
from verifier_server.settings import from_environment

SCRIPT = Script(seed=1, end_bias=3.0, seconds_per_pass=0.002)
CHECK_EVERY = 0.05  # seconds
CONTEXT = 512  # of the verifier


class WholeContext(ScriptedBackend):
    """A toy model whose logits depend on all tokens before: one wrong token anywhere in a slot is another text."""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        digest = hashlib.blake2b(array("H", tokens).tobytes(), digest_size=16).digest()
        source = np.random.default_rng([self.script.seed, *struct.unpack("<4I", digest)])
        logits = np.full(self.vocabulary.size, -np.inf, dtype=np.float32)
        logits[: END + 1] = source.standard_normal(END + 1) * self.script.sharpness
        logits[BEGIN] = -np.inf
        logits[END] += self.script.end_bias
        return logits


class Books(logging.Handler):
    """Checks a service's bookkeeping while it runs, and says what the service holds."""

    def __init__(self, service: Service) -> None:
        super().__init__(logging.ERROR)
        self._service = service
        self._checks = 0
        self._fault: str | None = None
        self._keeping: asyncio.Task[None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Count each logged error as a fault: an exception in a request or a callback, a failed pass."""
        self._fault = self._fault or logging.Formatter().format(record)

    async def keep(self) -> None:
        """Check, again and again, until the first fault."""
        service = self._service
        await asyncio.to_thread(service.loader.wait)
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
        """The counts of held resources; the first call begins the checks."""
        self._keeping = self._keeping or asyncio.create_task(self.keep())
        service, engine = self._service, self._service.loader.loaded().engine
        assert isinstance(engine, Engine)
        backend, queue = engine.backend, engine._scheduler._queue
        used = sum(bool(backend.length(slot)) for slot in range(backend.slots))
        held = {
            "checks": self._checks,
            "sessions": len(service.sessions),
            "sequences": len(queue._sequences),
            "waiting": sum(len(each.requests) for each in list(queue.active)),  # the engine changes it meanwhile
            "slots": used - len(engine._scheduler.slots._kept),  # those of texts that have ended are kept
            "tasks": len(asyncio.all_tasks()),
            "fault": self._fault or engine.failure,
        }
        return JSONResponse(held, status_code=200 if held["fault"] is None else 500)


def application() -> FastAPI:
    """A verifier by the environment, with the toy model and its bookkeeping checked."""
    settings = from_environment()
    options = settings.load_options()
    slots, most = options.slots or 4, options.batch_tokens
    app = create_app(settings, WholeContext(SCRIPT, slots=slots, context_length=CONTEXT, max_batch_tokens=most))
    books = Books(app.state.service)
    app.add_api_route("/soak", books.show)
    for name in ("", "uvicorn"):  # whose records do not reach the root
        logging.getLogger(name).addHandler(books)
    return app
