"""The drafter's metrics: its texts, counted from their events, and the state of its verifiers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drafter_client.generation import events
from drafter_client.generation.events import Listener, to_all
from drafter_client.http.health import VerifierStatus
from drafter_client.http.outages import Outage
from drafter_client.options import Observer
from drafter_client.statistics import Stats
from specpair.http_service.observability.logs import current
from specpair.http_service.observability.metrics import PREFIX, LabelledMetrics, ServiceMetrics


class DrafterMetrics:
    """Counts the texts of a pair: `Pair(observer=metrics, on_outage=metrics.outage)`. Thread-safe.

    A text counts for the key of the HTTP request in whose context it is read; outside of a request, for no key.
    """

    def __init__(self, metrics: ServiceMetrics) -> None:
        self._metrics, self.model_name = metrics, metrics.model_name
        self._running = metrics.gauge("num_requests_running", "Texts under way.")
        self.round_trips = metrics.seconds(
            "round_trip_seconds", "Time of a verify request, without its time in the verifier's queue and passes."
        )
        self.modes = metrics.counter("mode_selections", "Texts, and in mode auto stretches of texts, by mode.", "mode")
        self.resumed = metrics.counter("outages", "Outages of the verifier after which a text was resumed.")
        self._outage = metrics.gauge("outage_seconds", "How long the present outage of the verifier has lasted, or 0.")

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any]) -> Iterator[Listener]:
        """A context around one text, which yields the listener to its events: see `options.Observer`."""
        request = current()
        text = _MetricsCounter(self, self._metrics.text("" if request is None else request.key))
        running = self._running.labels(self.model_name())
        running.inc()
        try:
            yield text.take
        finally:
            running.dec()

    def outage(self, outage: Outage) -> None:
        """Note how long an outage has lasted: what `Pair` calls `on_outage` with."""
        self._outage.clear()  # the model may have another name since
        self._outage.labels(self.model_name()).set(0.0 if outage.over else outage.seconds)


class _MetricsCounter:
    """Counts one text. The listener's times are seconds on the run's clock."""

    def __init__(self, metrics: DrafterMetrics, text: LabelledMetrics) -> None:
        self._metrics, self._text = metrics, text
        self._began: float | None = None
        self._prompt_tokens = self._cached_tokens = 0
        self._last: float | None = None  # when the last tokens came
        self._ended = False

    def take(self, event: events.RunEvent, now: float) -> None:
        metrics = self._metrics
        match event:  # the most frequent ones first
            case events.Answered(draft, response):
                took = now - draft.sent_at - response.queue - response.forward
                metrics.round_trips.labels(metrics.model_name()).observe(max(0.0, took))
            case events.Committed():
                self._count_tokens(event, now)
            case events.ModeChosen(mode):
                metrics.modes.labels(metrics.model_name(), mode).inc()
            case events.Began():
                if self._began is None:
                    self._began, self._prompt_tokens = now, event.prompt_tokens
            case events.PromptCached(tokens):
                self._cached_tokens = tokens
            case events.Resumed():
                metrics.resumed.labels(metrics.model_name()).inc()
            case events.Ended():
                if event.finish_reason is not None and self._began is not None and not self._ended:
                    self._ended = True
                    self._text.ended(event.finish_reason, now - self._began)

    def _count_tokens(self, event: events.Committed, now: float) -> None:
        if not event.tokens:
            return
        self._text.tokens(len(event.tokens), None if self._last is None else now - self._last)
        if self._last is None and self._began is not None:
            self._text.began(self._prompt_tokens, self._cached_tokens, now - self._began)
        self._last = now
        for each in event.rounds:
            if each.judged:
                self._text.draft(each.judged, each.accepted)


class Observers:
    """Hands the events of each text to several observers, in their order; see `options.Observer`."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any]) -> Iterator[Listener]:
        """A context around one text, which yields the listener to its events."""
        with ExitStack() as stack:
            yield to_all(*(stack.enter_context(each.run(stats, settings)) for each in self._observers))


class PairVerifierGauges(Collector):
    """The gauges of the verifiers of one pair, by the label `verifier`, its address."""

    def __init__(self, model_name: Callable[[], str], verifiers: Callable[[], Sequence[VerifierStatus]]) -> None:
        self._model_name, self._verifiers = model_name, verifiers

    def collect(self) -> Iterator[Metric]:
        meanings = {
            "ready": "1 for a verifier that takes new texts, 0 for others.",
            "round_trip_seconds": "The shortest of the last round trips to a verifier.",
        }
        named = [(f"{PREFIX}_verifier_{name}", meaning) for name, meaning in meanings.items()]
        ready, link = (GaugeMetricFamily(*each, labels=("model_name", "verifier")) for each in named)
        for each in self._verifiers():
            labels = self._model_name(), str(each.address)
            ready.add_metric(labels, float(not each.why))
            link.add_metric(labels, each.round_trip)
        return iter((ready, link))
