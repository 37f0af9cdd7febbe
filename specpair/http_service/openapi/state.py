"""The operations on the state of a service that all services have: for orchestrators, Prometheus and clients."""

from specpair.http_service.observability.health import StateEndpoints
from specpair.http_service.openapi.operation import Errors, Json, Operation
from specpair.protocol.errors import InternalError
from specpair.protocol.service_responses import HealthResponse, LiveResponse, ReadyResponse, UsageResponse

_METRICS = (  # `/metrics`, in part
    "# HELP specpair_num_requests_waiting Requests that wait for a forward pass.\n"
    "# TYPE specpair_num_requests_waiting gauge\n"
    'specpair_num_requests_waiting{model_name="stdlib-target-q8_0"} 0.0\n'
)
_HEALTH: Json = {
    **{"status": "ready", "model": "stdlib-target-q8_0", "sessions": 0, "texts": 0, "waiting": 0},
    **{"generated_tokens": 0, "pass_seconds": 0.0},
}
_UNHEALTHY: dict[str, Json] = {
    "loading": {"status": "loading", "progress": 0.4},
    "draining": {"status": "draining"},
    "failed": {"status": "failed", "reason": "there is no file models/none.gguf"},
}
_COUNTED: Json = {"requests": 3, "prompt_tokens": 12, "generated_tokens": 72, "draft_tokens": 60, "accepted_tokens": 51}
USAGE: Json = {"keys": [{"key": "alice", **_COUNTED}]}


def state_operations(always: Errors) -> tuple[Operation, ...]:
    """The operations, whose endpoints are methods. `always`: errors of any request that needs a key."""
    tag, own = "operation", (InternalError,)
    failed, draining = {"failed": {"status": "failed"}}, {"draining": {"status": "draining"}}
    unhealthy = ("The model is loading, the service stops, or has failed.", _UNHEALTHY)
    dead, unready = ("It has failed.", failed), ("New texts are refused.", draining)
    health, live, ready = StateEndpoints.get_health, StateEndpoints.get_live, StateEndpoints.get_ready
    return (
        Operation(
            "GET", "/health", health, tag, HealthResponse, own, example=_HEALTH, needs_key=False, refusal=unhealthy
        ),
        Operation("GET", "/live", live, tag, LiveResponse, own, needs_key=False, refusal=dead),
        Operation("GET", "/ready", ready, tag, ReadyResponse, own, needs_key=False, refusal=unready),
        Operation("GET", "/metrics", StateEndpoints.get_metrics, tag, None, always, text=_METRICS),
        Operation("GET", "/usage", StateEndpoints.get_usage, tag, UsageResponse, always, example=USAGE),
    )
