"""Reads what a drafter knows of its verifiers when its metrics are asked for."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drafter_client.http.several.known import VerifierState
from specpair.http_service.observability.metrics import PREFIX


class VerifierGauges(Collector):
    """The gauges of the verifiers of one pair, by the label `verifier`, its address."""

    def __init__(self, model_name: Callable[[], str], verifiers: Callable[[], Sequence[VerifierState]]) -> None:
        self._model_name, self._verifiers = model_name, verifiers

    def collect(self) -> Iterator[Metric]:
        """The gauges, with their present values."""
        ready = self._gauge("verifier_ready", "1 for a verifier that takes new texts, 0 for others.")
        link = self._gauge("verifier_round_trip_seconds", "The shortest of the last round trips to a verifier.")
        for each in self._verifiers():
            labels = self._model_name(), str(each.address)
            ready.add_metric(labels, float(not each.why))
            link.add_metric(labels, each.round_trip)
        return iter((ready, link))

    def _gauge(self, name: str, meaning: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=("model_name", "verifier"))
