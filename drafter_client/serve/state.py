"""The endpoints on the state of `drafter serve`: whether it is healthy, lives and is ready, and its metrics."""

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from http_service.keys.gate import Gate
from http_service.observability import exposition, health
from http_service.observability.health import Condition
from http_service.replies.json_reply import JsonReply
from speculation.errors import Forbidden, Unauthorized
from speculation.protocol.service_responses import HealthResponse


class StateEndpoints:
    """The endpoints as methods."""

    def __init__(
        self,
        model: str,
        condition: Callable[[], Condition],
        gate: Gate,
        registry: CollectorRegistry,
    ) -> None:
        """`gate`: admits callers."""
        self._model, self._condition, self._gate, self._registry = model, condition, gate, registry

    async def get_health(self, request: Request) -> Response:
        """Whether the service is ready; 503 while it drains.

        It needs no key. A caller that other endpoints would refuse is told so in `access`.
        """
        drains = self._condition().status == "draining"
        status: Literal["draining", "ready"] = "draining" if drains else "ready"
        try:
            self._gate.admit(request)
            told = HealthResponse(status=status, model=None if drains else self._model)
        except (Unauthorized, Forbidden) as error:
            told = HealthResponse(status=status, access="forbidden" if isinstance(error, Forbidden) else "unauthorized")
        return JsonReply(told.body(), 503 if drains else 200)

    async def get_live(self, request: Request) -> Response:
        """Whether the process works. It needs no key."""
        return _orchestrated(health.live(self._condition()))

    async def get_ready(self, request: Request) -> Response:
        """Whether it takes new texts: 503 while it is overloaded or drains. It needs no key."""
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
