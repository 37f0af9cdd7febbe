"""The application of `drafter serve`."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from fastapi import FastAPI

from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.serve import live
from drafter_client.serve.live import Feed, PairEventEndpoints
from drafter_client.serve.messages import MeasuredRate, NetworkNode, PairState
from drafter_client.serve.metrics import PairVerifierGauges
from drafter_client.serve.network import DRAFTER as DRAFTER_NODE
from drafter_client.serve.network import PAUSE as NETWORK_PAUSE
from drafter_client.serve.network import NetworkFeed
from drafter_client.serve.texts import RETRY_AFTER, PairSource
from gateway import operations as text_operations
from gateway.anthropic_api.replies import error_form_of
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.tools.styles import Style
from gateway.router.registration import Registration
from specpair.http_service.app import App, HeadRequests, TrailingSlash
from specpair.http_service.keys.access import DRAFTER
from specpair.http_service.keys.gate import Gate
from specpair.http_service.observability.health import Condition, StateEndpoints, Supervisor
from specpair.http_service.observability.metrics import ServiceMetrics
from specpair.http_service.openapi import operation
from specpair.http_service.replies.json_replies import Failures
from specpair.http_service.replies.static_files import StaticFiles
from specpair.http_service.shutdown import GRACE, Draining, stop_signals
from specpair.http_service.web_pages import Hosts, Origins
from specpair.protocol.service_responses import HealthResponse

_LOOK_PAUSE = 2.0  # seconds between looks at the verifier
MOST_BYTES = 4 * 1024 * 1024  # of a request's body
_log = logging.getLogger("specpair.drafter")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """How a service in front of a pair is run."""

    drain: float = 0.0  # seconds that texts under way have to end after SIGTERM
    access_log: bool = False
    metrics_open: bool = False  # serve `/metrics` without a key
    gate: Gate | None = None  # None: there are no keys, and this machine and private networks are served
    origins: Origins = field(default_factory=lambda: Origins((), "cors_origins"))  # whose web pages may use it
    hosts: Hosts = field(default_factory=Hosts)  # that it answers to without a key, beside its machine's own names
    tool_style: Style | None = None  # how the model writes calls of tools; None: as its chat template shows
    strict: bool = False  # refuse hints, parameters without effect
    keep_lines: bool = False  # in conversations, keep those that change with each request of an agent
    look_every: float = _LOOK_PAUSE  # seconds between looks at the verifier
    network_every: float = NETWORK_PAUSE  # seconds between looks at the network, while its page shows that


def create_app(
    pair: Pair,
    options: Options,
    texts: int,
    queue: int,
    metrics: ServiceMetrics | None = None,
    *,
    feed: Feed | None = None,
    registration: Registration | None = None,
    how: AppOptions = AppOptions(),
) -> App:
    """The application in front of `pair`, which generates `texts` texts at a time, while `queue` may wait.

    `options`: how texts are drafted; a request says how they are sampled.
    `metrics`: those that the pair's observer counts texts in.
    `feed`: an observer of the pair, for what its page shows of texts under way; None: it shows nothing of them.

    The pair is closed with the application.
    """
    counted = metrics or ServiceMetrics(lambda: pair.target.name)
    counted.registry.register(PairVerifierGauges(counted.model_name, lambda: pair.verifiers))
    service = _Service(pair, options, texts, queue, feed or Feed(), registration=registration, how=how)
    gate = service.gate
    app = App(live.TITLE, service.lifespan, lambda: live.document(gate.access.keyed))
    events = PairEventEndpoints(gate, service.feed, service.network, service.state)
    states = StateEndpoints(gate, counted.registry, service.condition, service.health, how.metrics_open)
    text_operations.add_to(app, live.TEXTS_SERVED, service.endpoints, service.source)
    operation.add_to(app, live.STATE, states)
    operation.add_to(app, live.EVENTS, events)
    page = StaticFiles("drafter_client.serve", "page")
    page.add_to(app)
    Failures("drafter", error_form_of).add_to(app)
    app.add_middleware(HeadRequests)
    app.add_middleware(TrailingSlash)
    paths = [*live.SERVICE.paths, *page.paths]
    app.add_layers(gate, how.origins, how.hosts, counted, paths, how.access_log, strict=how.strict)
    return app


class _Service:
    """The pair behind the application: starts and ends with it, and reports health."""

    def __init__(
        self,
        pair: Pair,
        options: Options,
        texts: int,
        queue: int,
        feed: Feed,
        *,
        registration: Registration | None,
        how: AppOptions,
    ) -> None:
        self._pair, self.feed, self._registration = pair, feed, registration
        self.gate = gate = how.gate or Gate.of(None, None, False, DRAFTER)
        self._draining = draining = Draining(how.drain, lambda: inf if places.taken + places.waiting else 0.0)
        self.source = PairSource(pair, options, texts, queue, draining=draining, gate=gate, max_body_bytes=MOST_BYTES)
        self.endpoints = Endpoints(self.source, how.tool_style, keep_lines=how.keep_lines)
        self._places = places = self.endpoints.places
        places.on_leave = draining.changed
        self._supervisor = Supervisor()
        self.network = NetworkFeed(pair, self._own, how.network_every)
        self._look_every, self._closed = how.look_every, threading.Event()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        if (warning := self.gate.access.warning()) is not None:
            _log.warning("%s", warning)
        drained = self._draining if self._draining.seconds else None
        with stop_signals(asyncio.get_running_loop(), self._stop, drained) as received:
            watch = threading.Thread(target=self._watch, name="watch", daemon=True)
            watch.start()
            self._supervisor.start()
            self._supervisor.tell("READY=1")
            if self._registration is not None:
                self._registration.start()
            try:
                yield
            finally:
                received.app_ending = True
                if self._registration is not None:
                    await self._registration.stop()
                self._pair.wait_no_more()
                self._closed.set()
                await asyncio.to_thread(watch.join)
                await asyncio.to_thread(self.network.end)
                await asyncio.to_thread(self._pair.close)
                self.source.close()
                self.endpoints.close()
                self._supervisor.end()

    def _watch(self) -> None:
        """Look at the verifier again and again, so that an outage or another model is noticed without a text."""
        while not self._closed.wait(self._look_every):
            self._pair.look()

    def _stop(self) -> None:
        """Begin to stop: open requests have `GRACE` seconds to finish; then they get an error."""
        self._supervisor.tell("STOPPING=1")
        self.feed.close()
        self.network.close()
        asyncio.get_running_loop().call_later(GRACE, self.source.stop)

    def state(self) -> PairState:
        pair = self._pair
        return PairState(
            status=self.condition().status,
            reason=why(pair),
            model=pair.target.name,
            draft_model=pair.draft_model or "",
            texts=self._places.taken,
            waiting=self._places.waiting,
            target_alone=_target_alone(pair),
        )

    def _own(self) -> tuple[NetworkNode, int]:
        node = NetworkNode(
            name=DRAFTER_NODE,
            kind="drafter",
            status=self.condition().status,
            why=why(self._pair),
            model=self._pair.draft_model,
            texts=self._places.taken,
            waiting=self._places.waiting,
        )
        return node, self.gate.accounts.generated_tokens

    def condition(self) -> Condition:
        if self._draining.begun:
            return Condition("draining", 1)
        if self._pair.outage is not None:
            return Condition("verifier_away", RETRY_AFTER)
        if self._pair.refusal is not None:
            return Condition("model_mismatch", RETRY_AFTER)
        return Condition("overloaded", 1) if self._places.full else Condition("ready")

    def health(self) -> tuple[HealthResponse, dict[str, str]]:
        """The reply to `/health`: its body, and further headers."""
        found, target = self.condition(), self._pair.target
        if found.status == "draining":
            return HealthResponse(status="draining"), found.headers
        if found.status in ("ready", "overloaded"):
            return HealthResponse(
                status="ready",
                overloaded=found.status == "overloaded",
                model=target.name,
                target_identity=target.identity,
                generated_tokens=self.gate.accounts.generated_tokens,
            ), {}
        return HealthResponse(status=found.status, model=target.name, reason=why(self._pair)), found.headers


def why(pair: Pair) -> str | None:
    """Why no text can be generated now, in words; None: one can."""
    if pair.outage is not None:
        return f"the verifier is away: {pair.outage.why}"
    return None if pair.refusal is None else str(pair.refusal)


def _target_alone(pair: Pair) -> MeasuredRate | None:
    found = pair.paired.selection.measured(Mode.TARGET)
    return None if found is None else MeasuredRate(tokens_per_second=round(found[0], 1), remembered=found[1])
