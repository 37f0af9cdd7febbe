"""Counts what the engine does."""

from collections.abc import Callable

from specpair.http_service.observability.metrics import ServiceMetrics
from verifier_server.engine.observer import EngineObserver
from verifier_server.sessions import Session

_SESSIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class EngineMetrics(EngineObserver):
    """Counts what the engine does. Made when the model is loaded, because the metrics have the model's name."""

    def __init__(self, metrics: ServiceMetrics, on_end: Callable[[Session], object], model_name: str) -> None:
        """`on_end`: called with each session whose text has ended."""
        self._metrics, self._on_end = metrics, on_end
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

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        self._pass_time.observe(seconds)
        self._sessions.observe(sessions)
        self._tokens.observe(tokens)
        if prefilled:
            self._prefilled.inc(prefilled)

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        text = self._metrics.text(session.lease.key)
        text.tokens(tokens)
        if not first:
            text.gap(since)
        else:
            text.began(session.prompt_len, session.cached_tokens)
            if session.decided_from == session.prompt_len:  # else its first tokens were committed elsewhere
                text.first_token(since)
        if judged:
            text.draft(judged, accepted)

    def target_decoded(self, tokens: int) -> None:
        self._target_decoded.inc(tokens)

    def ended(self, session: Session, seconds: float) -> None:
        self._metrics.text(session.lease.key).ended(str(session.finish_reason), seconds)
        self._on_end(session)
