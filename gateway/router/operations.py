"""The router's own endpoints as operations, and its OpenAPI document. What it passes on, the nodes' documents say."""

from functools import cache

from gateway.router.endpoints import RouterEndpoints
from gateway.router.messages import LeftResponse, NodeInfo, NodeRequest, NodesResponse, StatsResponse
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi import state
from specpair.http_service.openapi.document import Examples
from specpair.http_service.openapi.operation import ALWAYS, BODY, Json, Operation
from specpair.protocol import errors

TITLE = "specpair router"
_DESCRIPTION = """Stands in front of several verifiers, and of drafters that serve.

These are its own endpoints. All other paths are passed on to a node, `/models/NAME` before them chooses among several
models. If no node can serve a request, the error is `bad_gateway` (502), `model_loading` or `shutting_down` (503)."""

STATE = tuple(each for each in state.state_operations(ALWAYS) if each.path != "/usage")  # that is joined from the nodes
NODES = (
    Operation("GET", "/nodes", RouterEndpoints.get_nodes, "nodes", NodesResponse, ALWAYS, parameters=("session",)),
    Operation(
        "POST",
        "/nodes",
        RouterEndpoints.register_node,
        "nodes",
        NodeInfo,
        (*ALWAYS, *BODY),
        request=NodeRequest,
    ),
    Operation(
        "DELETE",
        "/nodes",
        RouterEndpoints.remove_node,
        "nodes",
        LeftResponse,
        (*ALWAYS, errors.NotFound),
        parameters=("url",),
    ),
    Operation("GET", "/stats", RouterEndpoints.get_stats, "nodes", StatsResponse, ALWAYS),
)
# Paths of nodes that are counted apart.
PASSED = (
    *("/prefill", "/verify", "/verify/batch", "/generate", "/model", "/vocabulary", "/tokenize", "/usage"),
    *("/sessions", "/sessions/{session_id}", "/sessions/{session_id}/stream"),
    *("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"),
    *("/v1/{path:path}", "/models/{path:path}"),
)
_NODE: Json = {
    "url": "http://10.0.0.1:8000",
    "status": "ready",
    "kind": "verifier",
    "model": "stdlib-target-q8_0",
    "identity": "1c9a6f4f1a2b3c4d-9e8d7c6b",
    "vocabulary_size": 4096,
    "slots": 8,
    "weight": 1.0,
    "hourly_price": 1.5,
    "sessions": 3,
    "texts": 2,
    "waiting": 0,
    "in_flight": 2,
    "requests": 512,
    "failures": 0,
    "latency_ms": {"p50": 4.1, "p95": 9.8},
    "round_trip_ms": 0.4,
    "looked_ago": 0.3,
    "named_sessions": 1,
    "generated_tokens": 36_000,
    "pass_seconds": 288.4,
    "tokens_per_second": 100.0,
    "price_per_million_tokens": 4.1667,
}
SERVICE = built.Service(
    title=TITLE,
    description=_DESCRIPTION,
    key="A key that the router serves. Not needed if it has none.",
    operations=(*NODES, *STATE),
    examples=Examples(
        {"NodeRequest": {"a node reports": {"url": "http://10.0.0.1:8000", "hourly_price": 1.5, "ttl": 15.0}}},
        {
            **{name: each for name, each in state.RESPONSES.items() if name != "UsageResponse"},
            "NodeInfo": _NODE,
            "NodesResponse": {"nodes": [_NODE]},
            "LeftResponse": {"url": "http://10.0.0.1:8000", "left": True},
            "StatsResponse": {
                "policy": "jsq2",
                "sessions": 3,
                "repeated": 0,
                "models": [
                    {
                        "model": "stdlib-target-q8_0",
                        "nodes": 1,
                        "ready": 1,
                        "texts": 2,
                        "requests": 512,
                        "failures": 0,
                        "latency_ms": {"p50": 4.1, "p95": 9.8},
                        "generated_tokens": 36_000,
                        "tokens_per_second": 100.0,
                        "price_per_million_tokens": 4.1667,
                    }
                ],
            },
        },
        {},
    ),
    parameters={
        "url": {
            "name": "url",
            "in": "query",
            "required": True,
            "description": "The node's URL, as /nodes lists it.",
            "schema": {"type": "string"},
        },
        "session": {
            "name": "session",
            "in": "query",
            "description": "The id of a session whose node is wanted. May be given several times.",
            "schema": {"type": "array", "items": {"type": "string"}},
        },
    },
    refine=lambda schemas: None,
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a router with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
