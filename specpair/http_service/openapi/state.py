"""The operations on the state of a service that both services have: for orchestrators, Prometheus and clients."""

from specpair.http_service.observability.health import StateEndpoints
from specpair.http_service.openapi.document import RETRY_AFTER
from specpair.http_service.openapi.operation import Errors, Json, Operation
from specpair.http_service.openapi.schemas import PREFIX
from specpair.protocol.errors import InternalError
from specpair.protocol.service_responses import HealthResponse, LiveResponse, ReadyResponse, UsageResponse

METRICS = (  # `/metrics`, in part
    "# HELP specpair_num_requests_waiting Requests that wait for a forward pass.\n"
    "# TYPE specpair_num_requests_waiting gauge\n"
    'specpair_num_requests_waiting{model_name="stdlib-target-q8_0"} 0.0\n'
)
RESPONSES: dict[str, Json] = {
    "HealthResponse": {
        "status": "ready",
        "model": "stdlib-target-q8_0",
        "sessions": 0,
        "texts": 0,
        "waiting": 0,
        "generated_tokens": 0,
        "pass_seconds": 0.0,
    },
    "LiveResponse": {"status": "alive"},
    "ReadyResponse": {"status": "ready"},
    "UsageResponse": {
        "keys": [
            {
                "key": "alice",
                "requests": 3,
                "prompt_tokens": 12,
                "generated_tokens": 72,
                "draft_tokens": 60,
                "accepted_tokens": 51,
            }
        ]
    },
}
UNHEALTHY: dict[str, Json] = {  # `/health` with status 503
    "loading": {"status": "loading", "progress": 0.4},
    "draining": {"status": "draining"},
    "failed": {"status": "failed", "reason": "there is no file models/none.gguf"},
}


def state_operations(always: Errors) -> tuple[Operation, ...]:
    """The operations, whose endpoints are methods. `always`: errors of any request that needs a key."""
    return (
        Operation(
            "GET",
            "/health",
            StateEndpoints.get_health,
            "operation",
            HealthResponse,
            (InternalError,),
            needs_key=False,
            refusals={
                "503": {
                    "description": "The model is loading, the service stops, or has failed.",
                    "content": {
                        "application/json": {
                            "schema": {"$ref": PREFIX + "HealthResponse"},
                            "examples": {name: {"value": value} for name, value in UNHEALTHY.items()},
                        }
                    },
                }
            },
        ),
        Operation(
            "GET",
            "/live",
            StateEndpoints.get_live,
            "operation",
            LiveResponse,
            (InternalError,),
            needs_key=False,
            refusals={"503": _unavailable("LiveResponse", "It has failed.", {"status": "failed"})},
        ),
        Operation(
            "GET",
            "/ready",
            StateEndpoints.get_ready,
            "operation",
            ReadyResponse,
            (InternalError,),
            needs_key=False,
            refusals={
                "503": {
                    **_unavailable("ReadyResponse", "New texts are refused.", {"status": "draining"}),
                    "headers": {"Retry-After": RETRY_AFTER},
                }
            },
        ),
        Operation("GET", "/metrics", StateEndpoints.get_metrics, "operation", None, always, text=METRICS),
        Operation("GET", "/usage", StateEndpoints.get_usage, "operation", UsageResponse, always),
    )


def _unavailable(schema: str, description: str, example: Json) -> Json:
    content = {"application/json": {"schema": {"$ref": PREFIX + schema}, "example": example}}
    return {"description": description, "content": content}
