"""The router's metrics: those of its requests, and for each node what is known of it when Prometheus asks."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.router.forwarding import Forwarding
from gateway.router.nodes import Node
from specpair.http_service.observability.metrics import PREFIX, RequestMetrics, label
from specpair.numbers import quantile

_SHARES = (0.5, 0.95)


class DispatchTimes:
    """Counts how long requests wait until the node is asked that replies. Nodes that are asked in vain make it long."""

    def __init__(self, metrics: RequestMetrics) -> None:
        self._times = metrics.seconds(
            "router_dispatch_seconds", "Time from a whole request to the asking of the node that replies."
        )

    def count(self, node: Node, seconds: float) -> None:
        self._times.labels(label(node.model)).observe(seconds)


class NodeCollector(Collector):
    """The metrics of the nodes. They have the labels `model_name` and `node`."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding

    def describe(self) -> list[Metric]:
        """Nothing: else the registry would collect at the start."""
        return []

    def collect(self) -> Iterator[Metric]:
        labels = ("model_name", "node")
        ready = GaugeMetricFamily(f"{PREFIX}_router_node_ready", "Whether the node takes new texts.", labels=labels)
        texts = GaugeMetricFamily(f"{PREFIX}_router_node_texts", "Texts under way at the node.", labels=labels)
        waiting = GaugeMetricFamily(
            f"{PREFIX}_router_node_waiting", "Requests that wait there for a pass.", labels=labels
        )
        requests = CounterMetricFamily(
            f"{PREFIX}_router_node_requests", "Requests that were sent to the node.", labels=labels
        )
        failures = CounterMetricFamily(f"{PREFIX}_router_node_failures", "Requests that it was lost in.", labels=labels)
        tokens = CounterMetricFamily(
            f"{PREFIX}_router_node_generation_tokens", "Tokens generated there.", labels=labels
        )
        latency = GaugeMetricFamily(
            f"{PREFIX}_router_node_latency_seconds",
            "Quantiles of the time to the begin of a reply, of the last requests.",
            labels=(*labels, "quantile"),
        )
        for node in self._forwarding.fleet.nodes:
            named = (label(node.model), node.name)
            ready.add_metric(named, node.status == "ready")
            texts.add_metric(named, node.texts)
            waiting.add_metric(named, node.waiting)
            requests.add_metric(named, node.requests)
            failures.add_metric(named, node.failures)
            tokens.add_metric(named, node.pace.tokens)
            taken = [*node.latencies]
            for share in _SHARES if taken else ():
                latency.add_metric((*named, f"{share:g}"), quantile(taken, share))
        repeated = CounterMetricFamily(
            f"{PREFIX}_router_repeated", "Requests that were sent to a further node.", self._forwarding.repeated
        )
        sessions = GaugeMetricFamily(
            f"{PREFIX}_router_sessions", "Sessions whose node is remembered.", len(self._forwarding.sessions)
        )
        yield from (ready, texts, waiting, requests, failures, tokens, latency, repeated, sessions)
