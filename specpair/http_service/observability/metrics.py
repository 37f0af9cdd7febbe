"""Prometheus metrics of both HTTP services: requests, texts, speculation."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from specpair.extras import installed_version
from specpair.http_service.certificate import Certificate
from specpair.http_service.sharing.joining import Guests

PREFIX = "specpair"
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0),
)  # upper bounds of the buckets of every time
M = TypeVar("M", Counter, Gauge, Histogram)


def label(value: str) -> str:
    """The value of a label; "-" for an empty value, which Prometheus treats as a missing label."""
    return value or "-"


class RequestMetrics:
    """The metrics of the requests to one application, in a registry of its own. Thread-safe.

    Behind the prefix, a metric has the name that vLLM gives to the same thing, if vLLM has it. Each metric has the
    label `model_name`, except the version and the certificate's end; those that tell callers apart also have `key`, if
    `by_key` asks for it.
    """

    def __init__(self, model_name: Callable[[], str], *, by_key: bool = False) -> None:
        """`model_name`: the served model; "" while there is none. The label is "-" then.
        `by_key`: whether to count each key apart.
        """
        self.registry = CollectorRegistry()
        self._model_name = model_name
        self._by_key = by_key
        self._key_label = ("key",) if by_key else ()
        self._requests: dict[tuple[str, ...], tuple[Counter, Histogram]] = {}
        build = Info("build", "The version of specpair.", namespace=PREFIX, registry=self.registry)
        build.info({"version": installed_version()})
        self._http_requests = self.counter(
            "http_requests", "Requests by route and status.", "route", "status", *self._key_label
        )
        self._http_duration = self.seconds(
            "http_request_duration_seconds", "Time of a request to its last byte.", "route"
        )

    def model_name(self) -> str:
        return label(self._model_name())

    def certificate_ends(self, certificate: Certificate) -> None:
        """Add a metric with the end of the service's certificate, also after it is renewed."""
        words = "When the service's certificate ends, as Unix time."
        gauge = Gauge("tls_certificate_not_after_seconds", words, namespace=PREFIX, registry=self.registry)
        gauge.set_function(lambda: certificate.ends)

    def guests(self, guests: Guests) -> None:
        """Add metrics of a shared service's guests."""
        for name, words, value in (
            ("guests_joined", "Machines that joined since the start.", lambda: guests.joined),
            ("guests_refused", "Requests to join that were refused since the start.", lambda: guests.refused),
        ):
            Gauge(name, words, namespace=PREFIX, registry=self.registry).set_function(value)

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """A new counter with the label `model_name` and then `labels`. Its exposed name ends with `_total`."""
        return self._made(Counter, name, meaning, labels)

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return self._made(Gauge, name, meaning, labels)

    def seconds(self, name: str, meaning: str, *labels: str) -> Histogram:
        return self._made(Histogram, name, meaning, labels, buckets=SECONDS)

    def histogram(self, name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
        """A new histogram with the label `model_name`. `buckets`: their upper bounds."""
        return self._made(Histogram, name, meaning, (), buckets=buckets)

    def _made(self, kind: type[M], name: str, meaning: str, labels: Sequence[str], **more: Any) -> M:
        return kind(name, meaning, ("model_name", *labels), namespace=PREFIX, registry=self.registry, **more)

    def _values(self, key: str) -> tuple[str, ...]:
        """The label values of all metrics of a key; "": callers without a key."""
        return (self.model_name(), label(key)) if self._by_key else (self.model_name(),)

    def request(self, route: str, status: int, seconds: float, key: str) -> None:
        """Count a request. `route`: its path, with the names of parameters in place of their values."""
        model, *keys = self._values(key)
        labels = (model, route, str(status), *keys)
        counted = self._requests.get(labels)
        if counted is None:  # `labels` costs more than all else here
            counted = self._http_requests.labels(*labels), self._http_duration.labels(model, route)
            self._requests[labels] = counted
        counted[0].inc()
        counted[1].observe(seconds)


class ServiceMetrics(RequestMetrics):
    """The metrics of one application that generates texts. Thread-safe."""

    def __init__(self, model_name: Callable[[], str], *, by_key: bool = False) -> None:
        super().__init__(model_name, by_key=by_key)
        self._texts: dict[tuple[str, ...], LabelledMetrics] = {}
        key = self._key_label
        self.times = [
            self.seconds(name, meaning, *key)
            for name, meaning in (
                ("time_to_first_token_seconds", "Time from the request for a text to its first token."),
                ("inter_token_latency_seconds", "Time since the tokens before. Tokens that came together count once."),
                ("e2e_request_latency_seconds", "Time from the request for a text to its end."),
            )
        ]
        self.counts = [
            self.counter(name, meaning, *key)
            for name, meaning in (
                ("prompt_tokens", "Tokens of the prompts of texts that have begun."),
                ("prefix_cache_hits", "Of these, those that were not read, as the KV cache of another text had them."),
                ("generation_tokens", "Generated tokens."),
                ("spec_decode_num_drafts", "Drafts that the target judged."),
                ("spec_decode_num_draft_tokens", "Draft tokens that the target judged."),
                ("spec_decode_num_accepted_tokens", "Accepted draft tokens."),
            )
        ]
        self.success = self.counter(
            "request_success", "Texts that have ended, by finish reason.", "finished_reason", *key
        )
        self.accepted_per_position = self.counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted draft tokens by their position in the judged part of the draft, from 0 on.",
            "position",
            *key,
        )

    def text(self, key: str = "") -> "LabelledMetrics":
        """The counter of texts of the callers with this key."""
        labels = self._values(key)
        text = self._texts.get(labels)
        if text is None:
            text = self._texts[labels] = LabelledMetrics(self, labels)
        return text


class LabelledMetrics:
    """Counts the texts of one model, and of one key if keys are counted apart. Thread-safe."""

    def __init__(self, metrics: ServiceMetrics, labels: tuple[str, ...]) -> None:
        self._metrics, self._labels = metrics, labels
        self._ttft, self._itl, self._latency = (each.labels(*labels) for each in metrics.times)
        self._prompt_tokens, self._prefix_cache_hits, self._generation_tokens, *drafts = (
            each.labels(*labels) for each in metrics.counts
        )
        self._drafts, self._draft_tokens, self._accepted_tokens = drafts
        self._positions: list[Counter] = []

    def began(self, prompt_tokens: int, cached_tokens: int, seconds: float | None) -> None:
        """Count a text whose first token has come. `cached_tokens`: tokens of its prompt that were not read.

        `seconds`: since its request; None: its first token came to another service.
        """
        self._prompt_tokens.inc(prompt_tokens)
        if cached_tokens:
            self._prefix_cache_hits.inc(cached_tokens)
        if seconds is not None:
            self._ttft.observe(seconds)

    def tokens(self, count: int, since: float | None = None) -> None:
        """Count generated tokens. `since`: seconds since the previous tokens; None: these are the first."""
        self._generation_tokens.inc(count)
        if since is not None:
            self._itl.observe(since)

    def draft(self, judged: int, accepted: int) -> None:
        """Count a draft of which the target judged `judged` tokens, at least one, and accepted the first `accepted`."""
        self._drafts.inc()
        self._draft_tokens.inc(judged)
        if accepted:
            self._accepted_tokens.inc(accepted)
            model, *key = self._labels
            while len(self._positions) < accepted:
                depth = str(len(self._positions))
                self._positions.append(self._metrics.accepted_per_position.labels(model, depth, *key))
            for position in self._positions[:accepted]:
                position.inc()

    def ended(self, finish_reason: str, seconds: float) -> None:
        """Count a text that has ended, `seconds` after it was requested."""
        model, *key = self._labels
        self._metrics.success.labels(model, finish_reason, *key).inc()
        self._latency.observe(seconds)
