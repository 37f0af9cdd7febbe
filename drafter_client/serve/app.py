"""The application of `drafter serve`."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from drafter_client.options import Options
from drafter_client.pair import Pair
from drafter_client.serve.texts import PairTexts
from http_service.draining import Draining
from http_service.json_reply import JsonReply
from http_service.keys.access import DRAFTER, Access
from http_service.keys.accounts import Accounts
from http_service.keys.gate import Gate, GatedRequests
from http_service.keys.key_store import KeyStore
from http_service.observability import exposition, health
from http_service.observability.health import Condition
from http_service.observability.metrics import ServiceMetrics
from http_service.observability.observed_requests import ObservedRequests
from http_service.observability.routes import Routes
from http_service.origins import Origins, add_cors
from http_service.shutdown import stop_signals
from openai_api import routes
from openai_api.endpoints import Endpoints
from openai_api.messages.errors import openai_error
from speculation.errors import (
    Forbidden,
    InternalError,
    MethodNotAllowed,
    NotFound,
    RequestError,
    SpecPairError,
    Unauthorized,
)
from speculation.protocol.service_responses import HealthResponse

TITLE = "specpair drafter"
MOST_BYTES = 4 * 1024 * 1024  # of a request's body
_STATE = ("/health", "/live", "/ready", "/metrics", "/usage")
_log = logging.getLogger("specpair.drafter")


def create_app(
    pair: Pair,
    options: Options,
    texts: int,
    queue: int,
    metrics: ServiceMetrics | None = None,
    *,
    drain: float = 0.0,
    access_log: bool = False,
    gate: Gate | None = None,
    origins: Origins = Origins((), "cors_origins"),
) -> FastAPI:
    """The application in front of `pair`, which generates `texts` texts at a time. `queue`: how many may wait.

    `options`: how texts are drafted; a request says how they are sampled. `metrics`: those that the pair's observer
    counts texts in. `drain`: seconds that texts under way have to end after SIGTERM. `gate`: without one, there are no
    keys, and this machine and private networks are served. `origins`: whose web pages may use it. The pair is closed
    with the application.
    """
    passed = gate or Gate(Access(KeyStore(), names=DRAFTER), Accounts())
    counted = metrics or ServiceMetrics(lambda: pair.target.name)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if (warning := passed.access.warning()) is not None:
            _log.warning("%s", warning)
        with stop_signals(
            asyncio.get_running_loop(), pair.wait_no_more, draining if draining.seconds else None
        ) as received:
            try:
                yield
            finally:
                received.app_ending = True
                await asyncio.to_thread(pair.close)
                source.close()
                endpoints.close()

    def condition() -> Condition:
        if draining.begun:
            return Condition("draining", 1)
        return Condition("overloaded", 1) if endpoints.places.full else Condition("ready")

    async def get_health(request: Request) -> Response:
        told = HealthResponse(status="ready", model=pair.target.name)
        if draining.begun:
            told = HealthResponse(status="draining")
        try:
            passed.admit(request)
        except (Unauthorized, Forbidden) as error:
            told = HealthResponse(
                status=told.status, access="forbidden" if isinstance(error, Forbidden) else "unauthorized"
            )
        return JsonReply(told.body(), 200 if told.status == "ready" else 503)

    async def get_live(request: Request) -> Response:
        return _orchestrated(health.live(condition()))

    async def get_ready(request: Request) -> Response:
        return _orchestrated(health.ready(condition()))

    async def get_metrics(request: Request) -> Response:
        passed.admit(request)
        written = await run_in_threadpool(exposition.exposition, counted.registry)
        return Response(written, media_type=exposition.MEDIA_TYPE)

    async def get_usage(request: Request) -> Response:
        return JsonReply(passed.usage(passed.admit(request)).body())

    draining = Draining(drain, lambda: inf if endpoints.places.taken + endpoints.places.waiting else 0.0)
    source = PairTexts(pair, options, texts, queue, MOST_BYTES, draining, passed)
    endpoints = Endpoints(source)
    endpoints.places.on_leave = draining.changed
    app = FastAPI(title=TITLE, lifespan=lifespan, docs_url=None, redoc_url=None)
    routes.add_to(app, endpoints)
    for path, endpoint in zip(_STATE, (get_health, get_live, get_ready, get_metrics, get_usage), strict=True):
        app.add_api_route(path, endpoint, methods=["GET"])
    app.add_exception_handler(SpecPairError, _failed)
    app.add_exception_handler(HTTPException, _not_there)
    app.add_exception_handler(Exception, _fault)
    app.add_middleware(GatedRequests, gate=passed, origins=origins)
    add_cors(app, origins)
    known = Routes([*routes.PATHS, *_STATE, "/openapi.json"])
    app.add_middleware(ObservedRequests, metrics=counted, routes=known, access_log=access_log)
    return app


def _orchestrated(reply: health.Reply) -> Response:
    return JsonReply(reply.body.body(), reply.http_status, reply.headers)


async def _failed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SpecPairError)
    return openai_error(error)


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
