"""The application of `drafter serve`."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

from fastapi import FastAPI

from drafter_client.options import Options
from drafter_client.pair import Pair
from drafter_client.serve import operations
from drafter_client.serve.state import StateEndpoints
from drafter_client.serve.texts import RETRY_AFTER, PairTexts
from drafter_client.serve.watch import PAUSE, VerifierWatch
from http_service.connections.app import App
from http_service.draining import Draining
from http_service.head_requests import HeadRequests
from http_service.hosts import Hosts
from http_service.keys.access import DRAFTER, Access
from http_service.keys.accounts import Accounts
from http_service.keys.gate import Gate, GatedRequests
from http_service.keys.key_store import KeyStore
from http_service.observability.health import Condition
from http_service.observability.metrics import ServiceMetrics
from http_service.observability.observed_requests import ObservedRequests
from http_service.observability.routes import Routes
from http_service.openapi import docs_page, operation
from http_service.origins import Origins
from http_service.pages import KnownHosts, add_cors
from http_service.replies.failures import Failures
from http_service.shutdown import stop_signals
from http_service.trailing_slash import TrailingSlash
from openai_api.endpoints import Endpoints
from openai_api.messages.errors import form_of

MOST_BYTES = 4 * 1024 * 1024  # of a request's body
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
    hosts: Hosts | None = None,
    look_every: float = PAUSE,
) -> FastAPI:
    """The application in front of `pair`, which generates `texts` texts at a time. `queue`: how many may wait.

    `options`: how texts are drafted; a request says how they are sampled. `metrics`: those that the pair's observer
    counts texts in. `drain`: seconds that texts under way have to end after SIGTERM. `gate`: without one, there are no
    keys, and this machine and private networks are served. `origins`: whose web pages may use it. `hosts`: the names
    that it answers to without a key, beside its machine's own. `look_every`: seconds between looks at the verifier. The
    pair is closed with the application.
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
            watch = VerifierWatch(pair.look, look_every)
            watch.start()
            try:
                yield
            finally:
                received.app_ending = True
                pair.wait_no_more()
                await asyncio.to_thread(watch.close)
                await asyncio.to_thread(pair.close)
                source.close()
                endpoints.close()

    def condition() -> Condition:
        if draining.begun:
            return Condition("draining", 1)
        if pair.outage is not None:
            return Condition("verifier_away", RETRY_AFTER)
        if pair.refusal is not None:
            return Condition("model_mismatch", RETRY_AFTER)
        return Condition("overloaded", 1) if endpoints.places.full else Condition("ready")

    draining = Draining(drain, lambda: inf if endpoints.places.taken + endpoints.places.waiting else 0.0)
    source = PairTexts(pair, options, texts, queue, MOST_BYTES, draining, passed)
    endpoints = Endpoints(source)
    endpoints.places.on_leave = draining.changed
    app = App(operations.TITLE, lifespan)
    app.openapi = lambda: operations.document(passed.access.keyed)  # type: ignore[method-assign]
    state = StateEndpoints(lambda: pair.target.name, condition, lambda: why(pair), passed, counted.registry)
    operation.add_to(app, operations.OPENAI_OPERATIONS, endpoints)
    operation.add_to(app, operations.STATE, state)
    docs_page.add_to(app)
    Failures("drafter", form_of).add_to(app)
    app.add_middleware(HeadRequests)
    app.add_middleware(TrailingSlash)
    app.add_middleware(GatedRequests, gate=passed, origins=origins)
    add_cors(app, origins)
    app.add_middleware(KnownHosts, access=passed.access, hosts=hosts or Hosts())
    known = Routes([*(each.path for each in operations.SERVICE.operations), "/docs", "/openapi.json"])
    app.add_middleware(ObservedRequests, metrics=counted, routes=known, access_log=access_log)
    return app


def why(pair: Pair) -> str | None:
    """Why no text can be generated now, in words; None: one can."""
    if pair.outage is not None:
        return f"the verifier is away: {pair.outage.why}"
    return None if pair.refusal is None else str(pair.refusal)
