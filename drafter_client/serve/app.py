"""The application of `drafter serve`."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

from fastapi import FastAPI

from drafter_client.observability.verifier_gauges import VerifierGauges
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.serve import operations
from drafter_client.serve.live.endpoints import LiveEndpoints
from drafter_client.serve.live.feed import Feed
from drafter_client.serve.live.messages import MeasuredRate, PairState
from drafter_client.serve.network.messages import NetworkNode
from drafter_client.serve.network.view import DRAFTER as DRAFTER_NODE
from drafter_client.serve.network.watch import PAUSE as NETWORK_PAUSE
from drafter_client.serve.network.watch import NetworkFeed, Own
from drafter_client.serve.texts import RETRY_AFTER, PairSource
from drafter_client.serve.watch import PAUSE, VerifierWatch
from gateway.anthropic_api.endpoints import MessageEndpoints
from gateway.anthropic_api.errors import form_of
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.responses.endpoints import ResponseEndpoints
from gateway.openai_api.tokens.endpoints import TokenEndpoints
from gateway.openai_api.tools.styles import Style
from gateway.router.registration import Registration
from specpair.http_service.app import App, HeadRequests, TrailingSlash
from specpair.http_service.keys.access import DRAFTER
from specpair.http_service.keys.gate import Gate
from specpair.http_service.observability.health import Condition, StateEndpoints
from specpair.http_service.observability.metrics import ServiceMetrics
from specpair.http_service.observability.supervisor import Supervisor
from specpair.http_service.openapi import operation
from specpair.http_service.replies.failures import Failures
from specpair.http_service.replies.static_files import StaticFiles
from specpair.http_service.shutdown import Draining, stop_signals
from specpair.http_service.web_pages import Hosts, Origins
from specpair.protocol.service_responses import HealthResponse

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
    metrics_open: bool = False,
    gate: Gate | None = None,
    origins: Origins = Origins((), "cors_origins"),
    hosts: Hosts | None = None,
    tool_style: Style | None = None,
    look_every: float = PAUSE,
    registration: Registration | None = None,
    feed: Feed | None = None,
    token_price: float | None = None,
    network_every: float = NETWORK_PAUSE,
) -> FastAPI:
    """The application in front of `pair`, which generates `texts` texts at a time.

    `queue`: how many may wait.
    `options`: how texts are drafted; a request says how they are sampled.
    `metrics`: those that the pair's observer counts texts in.
    `drain`: seconds that texts under way have to end after SIGTERM.
    `metrics_open`: serve `/metrics` without a key.
    `gate`: without one, there are no keys, and this machine and private networks are served.
    `origins`: whose web pages may use it.
    `hosts`: the names that it answers to without a key, beside its machine's own.
    `tool_style`: how the model writes calls of tools; None: as its chat template shows.
    `look_every`: seconds between looks at the verifier.
    `registration`: with a router.
    `feed`: an observer of the pair, for what its page shows of texts under way; None: it shows nothing of them.
    `token_price`: what a million tokens of the verifier cost; None: unknown.
    `network_every`: seconds between looks at the network, while its page shows that.

    The pair is closed with the application.
    """
    passed = gate or Gate.of(None, None, False, DRAFTER)
    counted = metrics or ServiceMetrics(lambda: pair.target.name)
    counted.registry.register(VerifierGauges(counted.model_name, lambda: pair.verifiers))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if (warning := passed.access.warning()) is not None:
            _log.warning("%s", warning)
        with stop_signals(asyncio.get_running_loop(), stop, draining if draining.seconds else None) as received:
            watch = VerifierWatch(pair.look, look_every)
            watch.start()
            supervisor.start()
            supervisor.tell("READY=1")
            if registration is not None:
                registration.start()
            try:
                yield
            finally:
                received.app_ending = True
                if registration is not None:
                    await registration.stop()
                pair.wait_no_more()
                await asyncio.to_thread(watch.close)
                await asyncio.to_thread(network.end)
                await asyncio.to_thread(pair.close)
                source.close()
                endpoints.close()
                supervisor.end()

    def stop() -> None:
        supervisor.tell("STOPPING=1")
        happens.close()
        network.close()
        source.stop()
        pair.wait_no_more()

    def state() -> PairState:
        return PairState(
            status=condition().status,
            reason=why(pair),
            model=pair.target.name,
            draft_model=pair.draft_model or "",
            texts=endpoints.places.taken,
            waiting=endpoints.places.waiting,
            target_alone=alone(pair),
        )

    def own() -> Own:
        node = NetworkNode(
            name=DRAFTER_NODE,
            kind="drafter",
            status=condition().status,
            why=why(pair),
            model=pair.draft_model,
            texts=endpoints.places.taken,
            waiting=endpoints.places.waiting,
        )
        return Own(node, passed.accounts.generated_tokens)

    def condition() -> Condition:
        if draining.begun:
            return Condition("draining", 1)
        if pair.outage is not None:
            return Condition("verifier_away", RETRY_AFTER)
        if pair.refusal is not None:
            return Condition("model_mismatch", RETRY_AFTER)
        return Condition("overloaded", 1) if endpoints.places.full else Condition("ready")

    def health() -> tuple[HealthResponse, dict[str, str]]:
        found = condition()
        if found.status == "draining":
            return HealthResponse(status="draining"), found.headers
        if found.status in ("ready", "overloaded"):
            return HealthResponse(
                status="ready",
                overloaded=found.status == "overloaded",
                model=pair.target.name,
                target_identity=pair.target.identity,
                generated_tokens=passed.accounts.generated_tokens,
            ), {}
        return HealthResponse(status=found.status, model=pair.target.name, reason=why(pair)), found.headers

    happens, supervisor = feed or Feed(), Supervisor()
    network = NetworkFeed(pair, own, token_price, network_every)
    draining = Draining(drain, lambda: inf if endpoints.places.taken + endpoints.places.waiting else 0.0)
    source = PairSource(pair, options, texts, queue, MOST_BYTES, draining, passed)
    endpoints = Endpoints(source, tool_style)
    endpoints.places.on_leave = draining.changed
    app = App(operations.TITLE, lifespan, lambda: operations.document(passed.access.keyed))
    operation.add_to(app, operations.OPENAI_OPERATIONS, endpoints)
    operation.add_to(app, operations.RESPONSE_OPERATIONS, ResponseEndpoints(source, endpoints))
    operation.add_to(app, operations.MESSAGE_OPERATIONS, MessageEndpoints(source, endpoints))
    operation.add_to(app, operations.TOKEN_OPERATIONS, TokenEndpoints(source, endpoints.prompts))
    operation.add_to(app, operations.STATE, StateEndpoints(passed, counted.registry, condition, health, metrics_open))
    operation.add_to(app, operations.LIVE, LiveEndpoints(passed, happens, network, state))
    page = StaticFiles("drafter_client.serve", "page")
    page.add_to(app)
    Failures("drafter", form_of).add_to(app)
    app.add_middleware(HeadRequests)
    app.add_middleware(TrailingSlash)
    app.add_layers(passed, origins, hosts or Hosts(), counted, [*operations.SERVICE.paths, *page.paths], access_log)
    return app


def why(pair: Pair) -> str | None:
    """Why no text can be generated now, in words; None: one can."""
    if pair.outage is not None:
        return f"the verifier is away: {pair.outage.why}"
    return None if pair.refusal is None else str(pair.refusal)


def alone(pair: Pair) -> MeasuredRate | None:
    """What the target alone made, as measured."""
    found = pair.paired.selection.measured(Mode.TARGET)
    return None if found is None else MeasuredRate(tokens_per_second=round(found[0], 1), remembered=found[1])
