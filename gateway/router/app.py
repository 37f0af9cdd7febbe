"""The application of `specpair router`, and the command that serves it."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.anthropic_api.replies import error_form_of
from gateway.balancing import policy_of
from gateway.router import endpoints as own
from gateway.router.endpoints import RouterEndpoints
from gateway.router.forwarding import Forwarding, SessionNodes
from gateway.router.messages import NodeSpec
from gateway.router.nodes import Fleet, Node
from gateway.router.passing import Passing, RouterEntrance
from gateway.router.settings import RouterSettings, from_flags, keys_file
from gateway.router.settings import flags_parser as parser
from gateway.router.watch import Watch
from specpair.http_service import listening
from specpair.http_service.app import App, HeadRequests, TrailingSlash
from specpair.http_service.certificate import certificate_of
from specpair.http_service.keys import key_command
from specpair.http_service.keys.access import ROUTER
from specpair.http_service.keys.gate import Gate
from specpair.http_service.observability import logs
from specpair.http_service.observability.health import StateEndpoints, Supervisor
from specpair.http_service.observability.metrics import PREFIX, RequestMetrics, label
from specpair.http_service.openapi import operation
from specpair.http_service.replies.json_replies import Failures
from specpair.http_service.sharing import commands
from specpair.http_service.sharing.share import share_of
from specpair.http_service.shutdown import stop_signals
from specpair.http_service.web_pages import Hosts, Origins, read_hosts, read_origins
from specpair.numbers import quantile

_log = logging.getLogger("gateway.router")


def create_app(settings: RouterSettings, nodes: Sequence[NodeSpec] = ()) -> App:
    """The application of a router with these `settings`. `nodes`: those that stand in a list.

    Raises SettingsError for a file of keys that cannot be read.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if (warning := gate.access.warning()) is not None:
            _log.warning("%s", warning)
        for spec in nodes:
            fleet.join(spec)
        await watch.start()
        supervisor.start()
        supervisor.tell("READY=1")
        waiting = passing.draining if settings.drain else None
        with stop_signals(asyncio.get_running_loop(), stop, waiting) as received:
            try:
                yield
            finally:
                received.app_ending = True
                await watch.stop()
                supervisor.end()

    def stop() -> None:
        """End the requests under way."""
        supervisor.tell("STOPPING=1")
        forwarding.stopping = True
        watch.abort("the router is being stopped")

    gate = Gate.of(settings.api_key, settings.keys_file, settings.insecure, ROUTER, settings.key("keys_file"))
    fleet, supervisor = Fleet(), Supervisor()
    metrics = RequestMetrics(lambda: ",".join(fleet.models))
    watch = Watch(fleet, settings.looking_key, settings.look_every)
    forwarding = Forwarding(
        fleet,
        watch,
        SessionNodes(settings.max_sessions),
        policy_of(settings.policy)(),
        None if settings.node_key is None else settings.node_key.get_secret_value(),
        body_limit=settings.max_body_bytes,
        body_patience=settings.body_timeout,
        dispatched=dispatch_times(metrics),
    )
    passing = Passing(forwarding, settings.drain)
    endpoints = RouterEndpoints(gate, passing, settings.policy, settings.register_key)
    metrics.registry.register(NodeCollector(forwarding))
    state = StateEndpoints(gate, metrics.registry, endpoints.condition, endpoints.health, settings.metrics_open)
    app = App(own.TITLE, lifespan, lambda: own.document(gate.access.keyed))
    app.state.fleet = fleet
    operation.add_to(app, own.NODES, endpoints)
    operation.add_to(app, own.STATE, state)
    failures = Failures("router", error_form_of)
    failures.add_to(app)
    app.add_middleware(TrailingSlash)
    of_model = {"/health": endpoints.health_reply, "/nodes": endpoints.nodes_reply}
    app.add_middleware(RouterEntrance, gate=gate, passing=passing, failures=failures, of_model=of_model)
    app.add_middleware(HeadRequests)
    origins = Origins(read_origins(settings.cors_origins), settings.key("cors_origins"))
    hosts = Hosts(read_hosts(settings.allowed_hosts), settings.key("allowed_hosts"))
    paths = [*own.SERVICE.paths, *own.PASSED]
    app.add_layers(gate, origins, hosts, metrics, paths, settings.access_log)
    return app


__all__ = ["main", "parser"]


def main() -> int:
    """Serve until stopped. Returns the exit status: see `listening.run`."""
    arguments = sys.argv[2:]
    if arguments[:1] == ["key"]:
        return key_command.run("specpair router", arguments[1:], keys_file)
    if arguments and arguments[0] in commands.COMMANDS:
        return commands.run("specpair router", arguments[0], arguments[1:])

    def make() -> listening.ServedApp:
        settings, nodes = from_flags(arguments)
        logs.configure(settings.log_format)
        if (share := share_of(settings, settings.insecure, "router", settings.key)) is not None:
            settings = settings.model_copy(update=share.options(settings.host))
        certificate = certificate_of(settings.ssl_certfile, settings.ssl_keyfile, settings.key)
        return listening.ServedApp(create_app(settings, nodes), settings.host, settings.port, certificate, share)

    return listening.run("specpair router", make)


_LABELS = ("model_name", "node")
_OF_A_NODE: tuple[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, Callable[[Node], float]], ...] = (
    (GaugeMetricFamily, "ready", "Whether the node takes new texts.", lambda node: node.status == "ready"),
    (GaugeMetricFamily, "texts", "Texts under way at the node.", lambda node: node.texts),
    (GaugeMetricFamily, "waiting", "Requests that wait there for a pass.", lambda node: node.waiting),
    (CounterMetricFamily, "requests", "Requests that were sent to the node.", lambda node: node.requests),
    (CounterMetricFamily, "failures", "Requests that it was lost in.", lambda node: node.failures),
    (CounterMetricFamily, "generation_tokens", "Tokens generated there.", lambda node: node.pace.tokens),
)


def dispatch_times(metrics: RequestMetrics) -> Callable[[Node, float], None]:
    """Times from the request until the replying node is asked. Failed attempts at other nodes count."""
    times = metrics.seconds(
        "router_dispatch_seconds", "Time from a whole request to the asking of the node that replies."
    )
    return lambda node, seconds: times.labels(label(node.model)).observe(seconds)


class NodeCollector(Collector):
    """The metrics of the nodes. They have the labels `model_name` and `node`."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding

    def describe(self) -> list[Metric]:
        """Nothing: else the registry would collect at the start."""
        return []

    def collect(self) -> Iterator[Metric]:
        nodes = [((label(node.model), node.name), node) for node in self._forwarding.fleet.nodes]
        for family, name, words, value in _OF_A_NODE:
            metric = family(f"{PREFIX}_router_node_{name}", words, labels=_LABELS)
            for named, node in nodes:
                metric.add_metric(named, value(node))
            yield metric
        latency = GaugeMetricFamily(
            f"{PREFIX}_router_node_latency_seconds",
            "Quantiles of the time to the begin of a reply, of the last requests.",
            labels=(*_LABELS, "quantile"),
        )
        for named, node in nodes:
            for share in (0.5, 0.95) if node.latencies else ():
                latency.add_metric((*named, f"{share:g}"), quantile(node.latencies, share))
        yield latency
        yield CounterMetricFamily(
            f"{PREFIX}_router_repeated", "Requests that were sent to a further node.", self._forwarding.repeated
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_router_sessions", "Sessions whose node is remembered.", len(self._forwarding.sessions)
        )
