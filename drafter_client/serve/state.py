"""The endpoints on the state of `drafter serve`: whether it is healthy, lives and is ready, and its metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from http_service.json_reply import JsonReply
from http_service.observability import exposition, health
from http_service.observability.health import Condition
from speculation.protocol.service_responses import HealthResponse


class StateEndpoints:
    """The endpoints as methods."""

    def __init__(
        self,
        model: str,
        condition: Callable[[], Condition],
        admit: Callable[[Request], object],
        registry: CollectorRegistry,
    ) -> None:
        """`admit`: raises an error if the caller of a request may not use the service."""
        self._model, self._condition, self._admit, self._registry = model, condition, admit, registry

    async def get_health(self, request: Request) -> Response:
        """Whether the service is ready; 503 while it drains. It needs no key."""
        if self._condition().status == "draining":
            return JsonReply(HealthResponse(status="draining").body(), 503)
        return JsonReply(HealthResponse(status="ready", model=self._model).body())

    async def get_live(self, request: Request) -> Response:
        """Whether the process works. It needs no key."""
        return _orchestrated(health.live(self._condition()))

    async def get_ready(self, request: Request) -> Response:
        """Whether it takes new texts: 503 while it is overloaded or drains. It needs no key."""
        return _orchestrated(health.ready(self._condition()))

    async def get_metrics(self, request: Request) -> Response:
        """Metrics in the text format of Prometheus."""
        self._admit(request)
        written = await run_in_threadpool(exposition.exposition, self._registry)
        return Response(written, media_type=exposition.MEDIA_TYPE)


def _orchestrated(reply: health.Reply) -> Response:
    return JsonReply(reply.body.body(), reply.http_status, reply.headers)
