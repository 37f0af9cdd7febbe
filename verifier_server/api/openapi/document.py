"""Builds the OpenAPI document: every endpoint with its replies, errors, parameters and examples.

FastAPI cannot build it, since the endpoints read and write bodies without FastAPI. Tests compare the document with the
routes and with the replies of the endpoints.
"""

import inspect
import re
from functools import cache

from pydantic import BaseModel

from command_line import version
from speculation.errors import SpecPairError
from speculation.protocol import messages, responses, service_responses
from verifier_server.api.openapi.examples import DRAINING, EVENTS, FAILED, LOADING, REQUESTS, RESPONSES
from verifier_server.api.openapi.schemas import PREFIX, Json, schemas
from verifier_server.api.operations import OPERATIONS, Operation

TITLE = "specpair verifier"
_DESCRIPTION = """Verifies draft tokens against the target model; only token ids travel.

Every path works with and without a trailing slash. An unknown path is a 404 (`not_found`), another method a 405
(`method_not_allowed`, with the header Allow). All errors have one shape, and each has a stable `code`."""

_PARAMETERS: dict[str, Json] = {
    "session_id": {
        "name": "session_id",
        "in": "path",
        "required": True,
        "description": "Id of a session, from the reply to its prefill.",
        "schema": {"type": "string", "pattern": messages.SESSION_ID},
        "example": "demo",
    },
    "X-Session-Id": {
        "name": "X-Session-Id",
        "in": "header",
        "description": "The session's id, for routers that hash on a header. It can replace `session_id` in the "
        "body, and must not contradict it.",
        "schema": {"type": "string", "pattern": messages.SESSION_ID},
    },
    "from": {
        "name": "from",
        "in": "query",
        "description": "Position of the first token to send. Default: the end of the prompt.",
        "schema": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**9},
        "example": 5,
    },
    "below": {
        "name": "below",
        "in": "query",
        "description": "How many token ids, from the first on, the fingerprints cover. Default: all.",
        "schema": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**9},
        "example": 4096,
    },
}

_RETRY_AFTER: Json = {
    "description": "Seconds to wait before a retry. Absent after a failure.",
    "schema": {"type": "integer", "minimum": 0},
}
_SESSION = "$response.body#/session_id"
_LINKS: Json = {  # requests that can follow a prefill
    "verify": {
        "operationId": "verify",
        "requestBody": {"session_id": _SESSION, "position": "$response.body#/total_tokens", "draft_tokens": []},
    },
    "stream": {"operationId": "stream_session", "parameters": {"path.session_id": _SESSION}},
    "delete": {"operationId": "delete_session", "parameters": {"path.session_id": _SESSION}},
}


@cache
def document(keyed: bool = False) -> Json:
    """The document of a verifier with or without an API key. Cached: do not change the result."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "description": _DESCRIPTION, "version": version.installed()},
        "security": [{"bearer": []}] if keyed else [],
        "paths": paths,
        "components": {
            "schemas": schemas(_models()),
            "parameters": _PARAMETERS,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The value of VERIFIER_API_KEY, or a key of VERIFIER_KEYS_FILE. Not needed if the "
                    "verifier has no key.",
                }
            },
        },
    }


def _operation(operation: Operation) -> Json:
    summary, *more = _sentences(operation.endpoint)
    described: Json = {
        "operationId": operation.endpoint.__name__,
        "tags": [operation.tag],
        "summary": summary.rstrip("."),
    }
    if more:
        described["description"] = " ".join(more)
    if operation.parameters:
        described["parameters"] = [{"$ref": f"#/components/parameters/{name}"} for name in operation.parameters]
    if operation.request is not None:
        name = operation.request.__name__
        examples = {key: {"value": value} for key, value in REQUESTS[name].items()}
        content = {"application/json": {"schema": {"$ref": PREFIX + name}, "examples": examples}}
        described["requestBody"] = {"required": True, "content": content}
    if not operation.needs_key:
        described["security"] = []
    described["responses"] = {"200": _success(operation)} | _refusals(operation)
    return described


def _success(operation: Operation) -> Json:
    content: Json = {}
    if operation.response is not None:
        name = operation.response.__name__
        content["application/json"] = {"schema": {"$ref": PREFIX + name}, "example": RESPONSES[name]}
    description = "Success."
    if operation.text:
        content["text/plain"] = {"schema": {"type": "string"}, "example": operation.text}
    if operation.events:
        written = "".join(f"event: {name}\ndata: {data}\n\n" for name, data in EVENTS[operation.path])
        description = (
            "Server-sent events; the last one is `end` or `error`. During silence, comments (`:`) are sent.\n\n"
            f"```\n{written}```"
        )
        if operation.response is not None:
            description = f"JSON; with `stream`, the same text as a stream.\n\n{description}"
        name, data = EVENTS[operation.path][0]
        content["text/event-stream"] = {
            "schema": {"description": "One event.", "oneOf": [_event(*each) for each in operation.events]},
            "example": {"event": name, "data": data},
        }
    success: Json = {"description": description, "content": content}
    if operation.request is messages.PrefillRequest:
        success["links"] = _LINKS
    if "X-Session-Id" in operation.parameters:
        success["headers"] = {
            "X-Session-Id": {"description": "The session's id.", "required": True, "schema": {"type": "string"}}
        }
    return success


def _event(name: str, data: type[BaseModel]) -> Json:
    content = {"contentMediaType": "application/json", "contentSchema": {"$ref": PREFIX + data.__name__}}
    return {
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": {"const": name}, "data": {"type": "string", **content}},
    }


def _refusals(operation: Operation) -> Json:
    """The responses other than 200, by status."""
    by_status: dict[int, list[type[SpecPairError]]] = {}
    for error in operation.errors:
        by_status.setdefault(error.status, []).append(error)
    refusals = {str(status): _refusal(status, by_status[status]) for status in sorted(by_status)}
    if operation.response is service_responses.HealthResponse:
        examples = {"loading": {"value": LOADING}, "draining": {"value": DRAINING}, "failed": {"value": FAILED}}
        content = {"application/json": {"schema": {"$ref": PREFIX + "HealthResponse"}, "examples": examples}}
        refusals["503"] = {
            "description": "The model is loading, the verifier stops, or has failed.",
            "content": content,
        }
    if operation.response is service_responses.LiveResponse:
        refusals["503"] = _unavailable("LiveResponse", "It has failed.", {"status": "failed"})
    if operation.response is service_responses.ReadyResponse:
        refusals["503"] = _unavailable("ReadyResponse", "New texts are refused.", {"status": "draining"})
        refusals["503"]["headers"] = {"Retry-After": _RETRY_AFTER}
    return refusals


def _refusal(status: int, kinds: list[type[SpecPairError]]) -> Json:
    codes = [kind.code for kind in kinds]
    meanings = {kind: " ".join(_sentences(kind)) for kind in kinds}
    schema = {
        "allOf": [
            {"$ref": PREFIX + "ErrorResponse"},
            {"type": "object", "properties": {"error": {"properties": {"code": {"enum": codes}}}}},
        ]
    }
    examples = {kind.code: {"value": kind(meaning).body()} for kind, meaning in meanings.items()}
    described: Json = {
        "description": "\n".join(f"* `{kind.code}`: {meaning}" for kind, meaning in meanings.items()),
        "content": {"application/json": {"schema": schema, "examples": examples}},
    }
    if status == 401:
        described["headers"] = {
            "WWW-Authenticate": {"description": "The scheme, Bearer.", "required": True, "schema": {"type": "string"}}
        }
    if status in (429, 503):
        described["headers"] = {"Retry-After": _RETRY_AFTER}
    return described


def _unavailable(schema: str, description: str, example: Json) -> Json:
    """The response 503 of an endpoint for orchestrators."""
    content = {"application/json": {"schema": {"$ref": PREFIX + schema}, "example": example}}
    return {"description": description, "content": content}


def _sentences(described: object) -> list[str]:
    """The sentences of a docstring."""
    return re.split(r"(?<=\.)\s+", " ".join((inspect.getdoc(described) or "").split()))


def _models() -> set[type[BaseModel]]:
    """The message models that the document refers to."""
    models = {model for operation in OPERATIONS for model in (operation.request, operation.response) if model}
    return models | {data for operation in OPERATIONS for _, data in operation.events} | {responses.ErrorResponse}
