"""The router's metrics: of its requests, and for each node its state when Prometheus asks."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.router.forwarding import Forwarding
from gateway.router.nodes import Node
from specpair.http_service.observability.metrics import PREFIX, RequestMetrics, label
from specpair.numbers import quantile

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
