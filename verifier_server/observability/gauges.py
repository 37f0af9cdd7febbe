"""Reads the verifier's gauges when its metrics are asked for, each from the one object that has the value."""

from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specpair.http_service.observability.health import Condition
from specpair.http_service.observability.metrics import PREFIX
from specpair.protocol.service_responses import ServiceStatus
from verifier_server.engine.observer import EngineState
from verifier_server.session_table import SessionTable


class VerifierGauges(Collector):
    """The gauges of a verifier. Those of the engine are missing while there is none."""

    def __init__(
        self,
        model_name: Callable[[], str],
        condition: Callable[[], Condition],
        sessions: SessionTable,
        engine: Callable[[], EngineState | None],
    ) -> None:
        self._model_name, self._condition = model_name, condition
        self._sessions, self._engine = sessions, engine

    def collect(self) -> Iterator[Metric]:
        """The gauges, and what the engine counts itself, with their present values."""
        yield self._status()
        yield self._gauge("sessions", "Sessions that are held.", len(self._sessions))
        yield self._gauge("sessions_in_use", "Sessions with an open request.", self._sessions.in_use_now)
        state = self._engine()
        if state is None:
            return
        yield self._gauge("num_requests_running", "Requests in the forward pass under way.", state.running)
        yield self._gauge("num_requests_waiting", "Requests that wait for a forward pass.", state.waiting)
        yield self._gauge("kv_slots", "Slots: sessions whose KV cache can be held at once.", state.slots)
        yield self._gauge("kv_slots_in_use", "Slots of texts that have not ended.", state.slots_in_use)
        usage = state.cached_tokens / (state.slots * state.context_length)
        yield self._gauge("kv_cache_usage_perc", "Share of the KV cache that is filled, 0 to 1.", usage)
        yield self._gauge("kv_kept_tokens", "Tokens of ended texts whose KV cache is kept.", state.kept_tokens)
        yield self._counter("kv_evictions", "Texts under way that lost their slot to another one.", state.evictions)

    def _status(self) -> GaugeMetricFamily:
        now = self._condition().status
        family = GaugeMetricFamily(
            f"{PREFIX}_status", "1 for the present status, 0 for the others.", labels=("model_name", "status")
        )
        for status in get_args(ServiceStatus):
            family.add_metric((self._model_name(), status), float(status == now))
        return family

    def _gauge(self, name: str, meaning: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=("model_name",))
        family.add_metric((self._model_name(),), value)
        return family

    def _counter(self, name: str, meaning: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=("model_name",))
        family.add_metric((self._model_name(),), value)
        return family
