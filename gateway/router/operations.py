"""The router's own endpoints as operations, and its OpenAPI document. What it passes on, the nodes' documents say."""

from functools import cache

from gateway.router.endpoints import RouterEndpoints
from gateway.router.messages import LeftResponse, NodeInfo, NodeRequest, NodesResponse, StatsResponse
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi.operation import ALWAYS, BODY, Json, Operation, parameter
from specpair.http_service.openapi.state import state_operations
from specpair.protocol import errors

TITLE = "specpair router"
_DESCRIPTION = """Stands in front of several verifiers, and of drafters that serve.

These are its own endpoints. All other paths are passed on to a node, `/models/NAME` before them chooses among several
models. If no node can serve a request, the error is `bad_gateway` (502), `model_loading` or `shutting_down` (503)."""

STATE = tuple(each for each in state_operations(ALWAYS) if each.path != "/usage")  # that is joined from the nodes
_TEXT: Json = {"type": "string"}
_URL = parameter("url", "query", "The node's URL, as /nodes lists it.", _TEXT) | {"required": True}
_SESSION = parameter(
    "session",
    "query",
    "The id of a session whose node is wanted. May be given several times.",
    {"type": "array", "items": _TEXT},
)
NODES = (
    Operation("GET", "/nodes", RouterEndpoints.get_nodes, "nodes", NodesResponse, ALWAYS, parameters=(_SESSION,)),
    Operation(
        "POST",
        "/nodes",
        RouterEndpoints.register_node,
        "nodes",
        NodeInfo,
        (*ALWAYS, *BODY),
        request=NodeRequest,
        examples={"a node reports": {"url": "http://10.0.0.1:8000", "hourly_price": 1.5, "ttl": 15.0}},
    ),
    Operation(
        "DELETE",
        "/nodes",
        RouterEndpoints.remove_node,
        "nodes",
        LeftResponse,
        (*ALWAYS, errors.NotFound),
        parameters=(_URL,),
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
SERVICE = built.Service(
    title=TITLE,
    description=_DESCRIPTION,
    key="A key that the router serves. Not needed if it has none.",
    operations=(*NODES, *STATE),
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a router with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
