"""The metrics that the HTTP services of both ends have: requests, texts, speculation."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX = "specpair"
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0),
)  # upper bounds of the buckets of every time


def label(value: str) -> str:
    """The value of a label; "-" for an empty one, which to Prometheus is as if the label were missing."""
    return value or "-"


class RequestMetrics:
    """The metrics of the requests to one application, in a registry of its own. Thread-safe.

    Behind the prefix, a metric has the name that vLLM gives to the same thing, if vLLM has it. Each metric has the
    label `model_name`; those that tell callers apart also have `key`, if `by_key` asks for it.
    """

    def __init__(self, model_name: Callable[[], str], *, by_key: bool = False) -> None:
        """`model_name`: the served model; "" while there is none. The label is "-" then.
        `by_key`: whether to count each key apart.
        """
        self.registry = CollectorRegistry()
        self._model_name = model_name
        self._by_key = by_key
        self._requests: dict[tuple[str, ...], Counter] = {}
        self._durations: dict[tuple[str, ...], Histogram] = {}
        key = self.key_label
        self.http_requests = self.counter("http_requests", "Requests by route and status.", "route", "status", *key)
        self.http_duration = self.seconds(
            "http_request_duration_seconds", "Time of a request to its last byte.", "route"
        )

    def model_name(self) -> str:
        """The value of the label `model_name` now."""
        return label(self._model_name())

    @property
    def key_label(self) -> tuple[str, ...]:
        """The label for the name of the caller's key, unless keys are not counted apart."""
        return ("key",) if self._by_key else ()

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """A new counter with the label `model_name` and then `labels`. Its exposed name ends with `_total`."""
        return Counter(name, meaning, ("model_name", *labels), namespace=PREFIX, registry=self.registry)

    def histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """A new histogram with the label `model_name` and then `labels`. `buckets`: their upper bounds."""
        return Histogram(
            name, meaning, ("model_name", *labels), namespace=PREFIX, registry=self.registry, buckets=buckets
        )

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        """A new gauge with the label `model_name` and then `labels`."""
        return Gauge(name, meaning, ("model_name", *labels), namespace=PREFIX, registry=self.registry)

    def seconds(self, name: str, meaning: str, *labels: str) -> Histogram:
        """A new histogram of times."""
        return self.histogram(name, meaning, SECONDS, *labels)

    def values(self, key: str) -> tuple[str, ...]:
        """The values of the labels `key_label`. `key`: the name of the caller's key; "" for none."""
        return (label(key),) if self._by_key else ()

    def request(self, route: str, status: int, seconds: float, key: str) -> None:
        """Count a request. `route`: its path, with the names of parameters in place of their values."""
        model = self.model_name()
        labels = (model, route, str(status), *self.values(key))
        counter = self._requests.get(labels)
        if counter is None:  # `labels` costs more than all else here
            counter = self._requests[labels] = self.http_requests.labels(*labels)
            self._durations[model, route] = self.http_duration.labels(model, route)
        counter.inc()
        self._durations[model, route].observe(seconds)


class ServiceMetrics(RequestMetrics):
    """The metrics of one application that generates texts. Thread-safe."""

    def __init__(self, model_name: Callable[[], str], *, by_key: bool = False) -> None:
        super().__init__(model_name, by_key=by_key)
        self._texts: dict[tuple[str, ...], LabelledMetrics] = {}
        key = self.key_label
        self.ttft = self.seconds(
            "time_to_first_token_seconds", "Time from the request for a text to its first token.", *key
        )
        self.itl = self.seconds(
            "inter_token_latency_seconds",
            "Time since the tokens before. Tokens that came together count once.",
            *key,
        )
        self.latency = self.seconds("e2e_request_latency_seconds", "Time from the request for a text to its end.", *key)
        self.prompt_tokens = self.counter("prompt_tokens", "Tokens of the prompts of texts that have begun.", *key)
        self.prefix_cache_hits = self.counter(
            "prefix_cache_hits", "Of these, those that were not read, as the KV cache of another text had them.", *key
        )
        self.generation_tokens = self.counter("generation_tokens", "Generated tokens.", *key)
        self.success = self.counter(
            "request_success", "Texts that have ended, by finish reason.", "finished_reason", *key
        )
        self.drafts = self.counter("spec_decode_num_drafts", "Drafts that the target judged.", *key)
        self.draft_tokens = self.counter("spec_decode_num_draft_tokens", "Draft tokens that the target judged.", *key)
        self.accepted_tokens = self.counter("spec_decode_num_accepted_tokens", "Accepted draft tokens.", *key)
        self.accepted_per_position = self.counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted draft tokens by their position in the judged part of the draft, from 0 on.",
            "position",
            *key,
        )

    def text(self, key: str = "") -> "LabelledMetrics":
        """Where the texts of the callers with this key are counted."""
        labels = (self.model_name(), *self.values(key))
        text = self._texts.get(labels)
        if text is None:
            text = self._texts[labels] = LabelledMetrics(self, labels)
        return text


class LabelledMetrics:
    """Counts the texts of one model, and of one key if keys are counted apart. Thread-safe."""

    def __init__(self, metrics: ServiceMetrics, labels: tuple[str, ...]) -> None:
        self._metrics, self._labels = metrics, labels
        self._ttft = metrics.ttft.labels(*labels)
        self._itl = metrics.itl.labels(*labels)
        self._latency = metrics.latency.labels(*labels)
        self._prompt_tokens = metrics.prompt_tokens.labels(*labels)
        self._prefix_cache_hits = metrics.prefix_cache_hits.labels(*labels)
        self._generation_tokens = metrics.generation_tokens.labels(*labels)
        self._drafts = metrics.drafts.labels(*labels)
        self._draft_tokens = metrics.draft_tokens.labels(*labels)
        self._accepted_tokens = metrics.accepted_tokens.labels(*labels)
        self._positions: list[Counter] = []

    def began(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Count a text whose first token has come. `cached_tokens`: of its prompt, those that were not read."""
        self._prompt_tokens.inc(prompt_tokens)
        if cached_tokens:
            self._prefix_cache_hits.inc(cached_tokens)

    def first_token(self, seconds: float) -> None:
        """Count the time from a request for a text to its first token."""
        self._ttft.observe(seconds)

    def tokens(self, count: int) -> None:
        """Count `count` generated tokens."""
        self._generation_tokens.inc(count)

    def gap(self, seconds: float) -> None:
        """Count the time between two times at which tokens of a text came."""
        self._itl.observe(seconds)

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
