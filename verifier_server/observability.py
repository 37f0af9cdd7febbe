"""What the engine does: counted for the metrics, handed to pages that listen, and logged."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specpair.http_service.observability.health import Condition
from specpair.http_service.observability.logs import DELETION, INTERRUPT, LogLine
from specpair.http_service.observability.metrics import PREFIX, ServiceMetrics
from specpair.http_service.replies.events import EventFeed
from specpair.numbers import milliseconds
from specpair.protocol.messages import GenerateRequest
from specpair.protocol.response_fields import STOP_STRING
from specpair.protocol.service_responses import ServiceStatus
from verifier_server.engine.port import EngineObserver, EngineState
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

_SESSIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class EnginePass(NamedTuple):
    """One pass of the engine, as `PassMessage` says it. Times are in milliseconds."""

    ended_ms: float
    took_ms: float
    queue_ms: float
    sessions: int
    tokens: int
    prefilled: int
    judged: int
    accepted: int
    committed: int


class EngineFeed(EventFeed[EnginePass | Session]):
    """Hands passes, and sessions whose texts have ended, to its readers. The engine's thread tells of them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: the engine's."""
        super().__init__()
        self._clock = clock
        self.pass_seconds = 0.0  # of all passes; may be read in any thread
        self._waited, self._judged, self._accepted, self._committed = 0.0, 0, 0, 0  # of the pass that is concluded

    def waited(self, seconds: float) -> None:
        if self.heard:
            self._waited = max(self._waited, seconds)

    def committed(self, tokens: int, judged: int, accepted: int) -> None:
        if self.heard:
            self._committed += tokens
            self._judged += judged
            self._accepted += accepted

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        self.pass_seconds += seconds
        if self.heard:
            times = milliseconds(self._clock()), milliseconds(seconds), milliseconds(self._waited)
            counts = self._judged, self._accepted, self._committed
            self.put(EnginePass(*times, sessions, tokens, prefilled, *counts))
            self._waited, self._judged, self._accepted, self._committed = 0.0, 0, 0, 0

    def ended(self, session: Session) -> None:
        if self.heard:
            self.put(session)


class EngineMetrics(EngineObserver):
    """Counts what the engine does, and hands it to `feed`. Made when the model is loaded, because the metrics have the
    model's name."""

    def __init__(
        self, metrics: ServiceMetrics, feed: EngineFeed, on_end: Callable[[Session], object], model_name: str
    ) -> None:
        """`on_end`: called with each session whose text has ended."""
        self._metrics, self._feed, self._on_end = metrics, feed, on_end
        self._queue_time = metrics.seconds(
            "request_queue_time_seconds", "Time that a request waits for its first pass."
        ).labels(model_name)
        self._pass_time = metrics.seconds("pass_duration_seconds", "Time of a forward pass.").labels(model_name)
        self._sessions = metrics.histogram("pass_sessions", "Sessions that share a forward pass.", _SESSIONS).labels(
            model_name
        )
        self._tokens = metrics.histogram("iteration_tokens_total", "Tokens in a forward pass.", _TOKENS).labels(
            model_name
        )
        self._prefilled = metrics.counter(
            "prefill_tokens", "Tokens fed without being judged: prompts, and texts whose slot was taken."
        ).labels(model_name)
        self._target_decoded = metrics.counter(
            "target_decoded_tokens", "Tokens that the target decoded by self-continuation."
        ).labels(model_name)

    def waited(self, seconds: float) -> None:
        self._queue_time.observe(seconds)
        self._feed.waited(seconds)

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        self._pass_time.observe(seconds)
        self._sessions.observe(sessions)
        self._tokens.observe(tokens)
        if prefilled:
            self._prefilled.inc(prefilled)
        self._feed.passed(sessions, tokens, prefilled, seconds)

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        text = self._metrics.text(session.lease.key)
        text.tokens(tokens, None if first else since)
        if first:
            elsewhere = session.decided_from != session.prompt_len
            text.began(session.prompt_len, session.cached_tokens, None if elsewhere else since)
        if judged:
            text.draft(judged, accepted)
        self._feed.committed(tokens, judged, accepted)

    def target_decoded(self, tokens: int) -> None:
        self._target_decoded.inc(tokens)

    def ended(self, session: Session, seconds: float) -> None:
        self._metrics.text(session.lease.key).ended(str(session.finish_reason), seconds)
        self._on_end(session)
        self._feed.ended(session)


class ServiceGauges(Collector):
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


def log_text(session: Session) -> None:
    """Log the text of a session that has ended, or that nobody continues. Nothing is logged for one without a token."""
    generated = len(session.tokens) - session.decided_from
    if generated:
        LogLine(
            *(session.prompt_len, generated, session.seconds, session.drafted, session.accepted),
            mode_of(session),
            _ended_by(session),
        ).log(session.id)


def mode_of(session: Session) -> str:
    """Who drafts for a session: remote, fused or target."""
    request = session.lease.request
    return request.mode if isinstance(request, GenerateRequest) else "remote"


def _ended_by(session: Session) -> str:
    if session.stopped:
        return STOP_STRING
    return session.finish_reason or (DELETION if session.lease.deleted else INTERRUPT)
