"""The endpoints on the state of `drafter serve`: whether it is healthy, lives and is ready, and its metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from http_service.keys.gate import Gate
from http_service.observability import exposition, health
from http_service.observability.health import Condition
from http_service.replies.json_reply import JsonReply
from speculation.errors import Forbidden, Unauthorized
from speculation.protocol.service_responses import HealthResponse, ServiceStatus

_UNHEALTHY: tuple[ServiceStatus, ...] = ("draining", "verifier_away", "model_mismatch")


class StateEndpoints:
    """The endpoints as methods."""

    def __init__(
        self,
        model: Callable[[], str],
        condition: Callable[[], Condition],
        why: Callable[[], str | None],
        gate: Gate,
        registry: CollectorRegistry,
    ) -> None:
        """`why`: why no text can be generated now. `gate`: admits callers."""
        self._why, self._model, self._condition, self._gate, self._registry = why, model, condition, gate, registry

    async def get_health(self, request: Request) -> Response:
        """Whether the service is ready; 503 while it drains, or the verifier is away or does not pair.

        It needs no key. A caller that other endpoints would refuse is told so in `access`.
        """
        found = self._condition()
        status = found.status if found.status in _UNHEALTHY else "ready"
        ready = status == "ready"
        try:
            self._gate.admit(request)
            told = HealthResponse(
                status=status,
                model=None if status == "draining" else self._model(),
                reason=None if ready or status == "draining" else self._why(),
            )
        except (Unauthorized, Forbidden) as error:
            told = HealthResponse(status=status, access="forbidden" if isinstance(error, Forbidden) else "unauthorized")
        wait = {} if ready or found.retry_after is None else {"Retry-After": str(found.retry_after)}
        return JsonReply(told.body(), 200 if ready else 503, wait)

    async def get_live(self, request: Request) -> Response:
        """Whether the process works. It needs no key."""
        return _orchestrated(health.live(self._condition()))

    async def get_ready(self, request: Request) -> Response:
        """Whether it takes new texts: 503 while it is overloaded or drains, or the verifier is away or does not pair.

        It needs no key.
        """
        return _orchestrated(health.ready(self._condition()))

    async def get_metrics(self, request: Request) -> Response:
        """Metrics in the text format of Prometheus."""
        self._gate.admit(request)
        written = await run_in_threadpool(exposition.exposition, self._registry)
        return Response(written, media_type=exposition.MEDIA_TYPE)

    async def get_usage(self, request: Request) -> Response:
        """What the caller's key has used; with a key of an administrator, what each key has."""
        return JsonReply(self._gate.usage(self._gate.admit(request)).body())


def _orchestrated(reply: health.Reply) -> Response:
    return JsonReply(reply.body.body(), reply.http_status, reply.headers)
