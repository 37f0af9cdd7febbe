"""Engine events for the metrics, for readers of `GET /events`, and for the log."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field

from specpair.http_service.observability.health import Condition
from specpair.http_service.observability.logs import INTERRUPT, log_ended_text
from specpair.http_service.observability.metrics import PREFIX, ServiceMetrics
from specpair.http_service.replies.events import EventFeed
from specpair.numbers import milliseconds
from specpair.protocol.messages import GenerateRequest
from specpair.protocol.response_fields import STOP_STRING
from specpair.protocol.service_responses import ServiceStatus
from verifier_server.engine.interface import EngineObserver, EngineState
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

Number = Annotated[int, Field(ge=0)]
_EVICTIONS = "kv_evictions"
_SESSIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class PassMessage:
    """A forward pass of the target."""

    ended_ms: Annotated[float, Field(description="End of the pass, on the engine's clock, whose zero is arbitrary.")]
    took_ms: Annotated[float, Field(description="Duration of the pass.")]
    queue_ms: Annotated[float, Field(description="Longest wait of the requests whose first pass this is.")]
    sessions: Annotated[Number, Field(description="Sessions in the pass.")]
    tokens: Annotated[Number, Field(description="Tokens that the pass read: its width.")]
    prefilled: Annotated[Number, Field(description="Of these, tokens that are not judged, such as a prompt's.")]
    judged: Annotated[Number, Field(description="Draft tokens judged.")]
    accepted: Annotated[Number, Field(description="Of these, those accepted.")]
    committed: Annotated[Number, Field(description="Tokens committed.")]


class EngineFeed(EventFeed[PassMessage | Session]):
    """Passes engine passes and ended sessions to its readers."""

    pass_seconds = 0.0  # of all passes; may be read in any thread


class EngineMetrics(EngineObserver):
    """Counts engine events for the metrics, and hands them to `feed`. Created after the load, since metrics have the
    model's name."""

    def __init__(
        self,
        metrics: ServiceMetrics,
        feed: EngineFeed,
        on_end: Callable[[Session], object],
        clock: Callable[[], float],
        model_name: str,
    ) -> None:
        """`on_end`: called with each session whose text has ended. `clock`: the engine's."""
        self._metrics, self._feed, self._on_end, self._clock = metrics, feed, on_end, clock
        self._waited, self._judged, self._accepted, self._committed = 0.0, 0, 0, 0  # of the pass that is concluded
        seconds, histogram, counter = metrics.seconds, metrics.histogram, metrics.counter
        self._queue_time, self._pass_time, self._sessions, self._tokens = (
            each.labels(model_name)
            for each in (
                seconds("request_queue_time_seconds", "Time that a request waits for its first pass."),
                seconds("pass_duration_seconds", "Time of a forward pass."),
                histogram("pass_sessions", "Sessions that share a forward pass.", _SESSIONS),
                histogram("iteration_tokens_total", "Tokens in a forward pass.", _TOKENS),
            )
        )
        self._prefilled, self._target_decoded = (
            each.labels(model_name)
            for each in (
                counter("prefill_tokens", "Tokens fed without being judged: prompts, and texts whose slot was taken."),
                counter("target_decoded_tokens", "Tokens that the target decoded by self-continuation."),
            )
        )

    def waited(self, seconds: float) -> None:
        self._queue_time.observe(seconds)
        self._waited = max(self._waited, seconds)

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        self._pass_time.observe(seconds)
        self._sessions.observe(sessions)
        self._tokens.observe(tokens)
        if prefilled:
            self._prefilled.inc(prefilled)
        self._feed.pass_seconds += seconds
        if self._feed.heard:
            times = milliseconds(self._clock()), milliseconds(seconds), milliseconds(self._waited)
            counts = self._judged, self._accepted, self._committed
            self._feed.put(PassMessage(*times, sessions, tokens, prefilled, *counts))
        self._waited, self._judged, self._accepted, self._committed = 0.0, 0, 0, 0

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        text = self._metrics.text(session.lease.key)
        text.tokens(tokens, None if first else since)
        if first:
            elsewhere = session.decided_from != session.prompt_len
            text.began(session.prompt_len, session.cached_tokens, None if elsewhere else since)
        if judged:
            text.draft(judged, accepted)
        self._judged += judged
        self._accepted += accepted
        self._committed += tokens

    def target_decoded(self, tokens: int) -> None:
        self._target_decoded.inc(tokens)

    def ended(self, session: Session, seconds: float) -> None:
        self._metrics.text(session.lease.key).ended(str(session.finish_reason), seconds)
        self._on_end(session)
        self._feed.put(session)


class ServiceGauges(Collector):
    """The gauges of a verifier; those of the engine once it is loaded."""

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
        """The gauges and the engine's counters, with their present values."""
        model_name, now = self._model_name(), self._condition().status
        family = GaugeMetricFamily(
            f"{PREFIX}_status", "1 for the present status, 0 for the others.", labels=("model_name", "status")
        )
        for status in get_args(ServiceStatus):
            family.add_metric((model_name, status), float(status == now))
        yield family
        found: list[tuple[str, str, float]] = [
            ("sessions", "Sessions that are held.", len(self._sessions)),
            ("sessions_in_use", "Sessions with an open request.", self._sessions.admission.in_use),
        ]
        if (state := self._engine()) is not None:
            usage = state.cached_tokens / (state.slots * state.context_length)
            found += [
                ("num_requests_running", "Requests in the forward pass under way.", state.running),
                ("num_requests_waiting", "Requests that wait for a forward pass.", state.waiting),
                ("kv_slots", "Slots: sessions whose KV cache can be held at once.", state.slots),
                ("kv_slots_in_use", "Slots of texts that have not ended.", state.slots_in_use),
                ("kv_cache_usage_perc", "Share of the KV cache that is filled, 0 to 1.", usage),
                ("kv_kept_tokens", "Tokens of ended texts whose KV cache is kept.", state.kept_tokens),
                (_EVICTIONS, "Texts under way that lost their slot to another one.", state.evictions),
            ]
        for name, meaning, value in found:
            kind = CounterMetricFamily if name == _EVICTIONS else GaugeMetricFamily
            metric = kind(f"{PREFIX}_{name}", meaning, labels=("model_name",))
            metric.add_metric((model_name,), value)
            yield metric


def log_text(session: Session) -> None:
    """Log a session whose text has ended or was abandoned, unless it has no token."""
    generated = len(session.tokens) - session.decided_from
    if generated:
        log_ended_text(
            *(session.prompt_len, generated, session.seconds, session.drafted, session.accepted),
            mode=mode_of(session),
            ended_by=STOP_STRING if session.stopped else session.finish_reason or INTERRUPT,
            session_id=session.id,
        )


def mode_of(session: Session) -> str:
    """Who drafts for a session: remote, fused or target."""
    request = session.lease.request
    return request.mode if isinstance(request, GenerateRequest) else "remote"
