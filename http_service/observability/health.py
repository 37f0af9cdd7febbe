"""What the endpoints for orchestrators reply: `/live` and `/ready`."""

from typing import NamedTuple

from speculation.protocol.service_responses import LiveResponse, ReadyResponse, ServiceStatus


class Condition(NamedTuple):
    """The state of a service. `retry_after`: whole seconds after which it may be another one; None: unknown."""

    status: ServiceStatus
    retry_after: int | None = None


class Reply(NamedTuple):
    """A reply, without the HTTP of the application."""

    body: LiveResponse | ReadyResponse
    http_status: int
    headers: dict[str, str]


def live(condition: Condition) -> Reply:
    """The reply to `GET /live`: 503 only when the service has failed for good, so that it should be restarted."""
    failed = condition.status == "failed"
    return Reply(LiveResponse(status="failed" if failed else "alive"), 503 if failed else 200, {})


def ready(condition: Condition) -> Reply:
    """The reply to `GET /ready`: 200 only while the service takes new texts."""
    headers = {} if condition.retry_after is None else {"Retry-After": str(condition.retry_after)}
    return Reply(ReadyResponse(status=condition.status), 200 if condition.status == "ready" else 503, headers)
