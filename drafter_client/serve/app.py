"""The application of `drafter serve`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from drafter_client.options import Mode
from drafter_client.pair import Pair
from drafter_client.serve.texts import PairTexts
from openai_api import routes
from openai_api.endpoints import Endpoints
from openai_api.errors import openai_error
from speculation.errors import InternalError, MethodNotAllowed, NotFound, RequestError, SpecPairError

TITLE = "specpair drafter"
MOST_BYTES = 4 * 1024 * 1024  # of a request's body


def create_app(pair: Pair, mode: Mode, texts: int, queue: int) -> FastAPI:
    """The application in front of `pair`, which generates `texts` texts at a time. `queue`: how many may wait.

    The pair is closed with the application.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(pair.close)
            source.close()
            endpoints.close()

    source = PairTexts(pair, mode, texts, queue, MOST_BYTES)
    endpoints = Endpoints(source)
    app = FastAPI(title=TITLE, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.texts = source
    routes.add_to(app, endpoints)
    app.add_exception_handler(HTTPException, _not_there)
    app.add_exception_handler(Exception, _fault)
    return app


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known: SpecPairError = RequestError(str(error.detail))
    if error.status_code == 405:
        known = MethodNotAllowed(f"{request.method} is not possible on {request.url.path}")
    elif error.status_code == 404:
        known = NotFound(f"there is nothing at {request.url.path}: OpenAI's endpoints begin with /v1")
    return openai_error(known)


async def _fault(_request: Request, error: Exception) -> Response:
    return openai_error(InternalError(f"a fault of the drafter ({type(error).__name__}): see its log"))
