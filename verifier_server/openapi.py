"""The OpenAPI document: every endpoint with its replies, errors, parameters and examples.

It is made here and not by FastAPI, since the endpoints read and write bodies by hand. Tests hold it against the routes
and against what the endpoints answer.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from pydantic import BaseModel

from speculation import errors, responses, wire
from speculation.errors import SpecPairError
from verifier_server.openapi_examples import ERRORS, EVENTS, FAILED, LOADING, REQUESTS, RESPONSES
from verifier_server.openapi_schemas import PREFIX, Json, schemas

Errors = tuple[type[SpecPairError], ...]

TITLE = "specpair verifier"
_DESCRIPTION = """Verifies draft tokens against the target model; only token ids travel.

Every path works with and without a trailing slash. An unknown path is a 404 (`not_found`), another method a 405
(`method_not_allowed`, with the header Allow). Errors have one shape, and a stable `code` each."""

_MODEL: Errors = (errors.ModelLoading, errors.ModelFailed)  # until the model is there
_ALWAYS: Errors = (errors.Unauthorized, errors.InternalError)
_BODY: Errors = (errors.BodyTooLarge, errors.InvalidRequest)
_PROMPT: Errors = (errors.EmptyPrompt, errors.PromptTooLong, errors.TokenOutOfRange)
_ENGINE: Errors = (errors.EngineError, errors.Overloaded)

_PARAMETERS: dict[str, Json] = {
    "session_id": {
        "name": "session_id",
        "in": "path",
        "required": True,
        "description": "Id of a session, as the reply to its prefill told it.",
        "schema": {"type": "string", "pattern": wire.SESSION_ID},
        "example": "demo",
    },
    "X-Session-Id": {
        "name": "X-Session-Id",
        "in": "header",
        "description": "The session's id, for routers that hash on a header. It may stand in for `session_id` in the "
        "body, and must not contradict it.",
        "schema": {"type": "string", "pattern": wire.SESSION_ID},
    },
    "from": {
        "name": "from",
        "in": "query",
        "description": "The position of the first token to be sent; left out, the end of the prompt.",
        "schema": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**9},
        "example": 5,
    },
    "below": {
        "name": "below",
        "in": "query",
        "description": "Fingerprints over the first so many token ids; left out, over all.",
        "schema": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**9},
        "example": 4096,
    },
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint as the document describes it."""

    method: str
    path: str
    name: str  # the operationId
    tag: str
    summary: str
    response: type[BaseModel] | None  # None: always a stream
    errors: Errors
    request: type[BaseModel] | None = None
    parameters: tuple[str, ...] = ()
    events: tuple[tuple[str, type[BaseModel]], ...] = ()  # of a stream, with their data
    names_session: bool = False  # whether the reply carries X-Session-Id


OPERATIONS = (
    Operation(
        "post",
        "/prefill",
        "prefill",
        "speculation",
        "Open a session with a prompt and get its first token",
        responses.PrefillResponse,
        (
            *(*_ALWAYS, *_BODY, *_PROMPT, *_MODEL, *_ENGINE),
            *(errors.SessionMismatch, errors.SessionConflict, errors.UnknownSession, errors.OverlapRefused),
        ),
        request=wire.PrefillRequest,
        parameters=("X-Session-Id",),
        names_session=True,
    ),
    Operation(
        "post",
        "/verify",
        "verify",
        "speculation",
        "Compare a draft with what the target model says, and get the tokens that are committed now",
        responses.VerifyResponse,
        (
            *(*_ALWAYS, *_BODY, *_MODEL, *_ENGINE, errors.SessionMismatch, errors.UnknownSession),
            *(errors.TokenOutOfRange, errors.TooManyDrafts, errors.OverlapRefused, errors.PositionInsidePrompt),
            *(errors.PositionBeyondCommitted, errors.ImplicitSessionRefused, errors.SelfContinueRefused),
        ),
        request=wire.VerifyRequest,
        parameters=("X-Session-Id",),
        names_session=True,
    ),
    Operation(
        "post",
        "/verify/batch",
        "verify_batch",
        "speculation",
        "The same for several sessions: each item is answered, or refused, by itself, in order",
        responses.BatchResponse,
        (*_ALWAYS, *_BODY, *_MODEL),
        request=wire.BatchRequest,
    ),
    Operation(
        "get",
        "/sessions/{session_id}/stream",
        "stream_session",
        "sessions",
        "Committed tokens of a session as they come, as server-sent events",
        None,
        (
            *(*_ALWAYS, *_MODEL, errors.InvalidRequest, errors.UnknownSession),
            *(errors.PositionInsidePrompt, errors.PositionBeyondCommitted),
        ),
        parameters=("session_id", "from"),
        events=(
            ("tokens", responses.SessionTokensEvent),
            ("end", responses.SessionEndEvent),
            ("error", responses.ErrorResponse),
        ),
    ),
    Operation(
        "post",
        "/generate",
        "generate",
        "texts",
        "A whole text by the target alone, or drafted on the server, too",
        responses.GenerateResponse,
        (*_ALWAYS, *_BODY, *_PROMPT, *_MODEL, *_ENGINE, errors.FusedUnavailable),
        request=wire.GenerateRequest,
        events=(
            ("tokens", responses.GenerateTokensEvent),
            ("end", responses.GenerateResponse),
            ("error", responses.ErrorResponse),
        ),
    ),
    Operation(
        "post",
        "/tokenize",
        "tokenize",
        "model",
        "Token ids of a text, as the target reads it",
        responses.TokenizeResponse,
        (*_ALWAYS, *_BODY, *_MODEL, errors.PromptTooLong),
        request=wire.TokenizeRequest,
    ),
    Operation(
        "get",
        "/model",
        "get_model",
        "model",
        "What is served: limits, costs, vocabulary fingerprints, chat template",
        responses.ModelResponse,
        (*_ALWAYS, *_MODEL, errors.InvalidRequest),
        parameters=("below",),
    ),
    Operation(
        "get",
        "/vocabulary",
        "get_vocabulary",
        "model",
        "The bytes and the class of every token id",
        responses.VocabularyResponse,
        (*_ALWAYS, *_MODEL),
    ),
    Operation(
        "get",
        "/health",
        "get_health",
        "model",
        "Whether the model is ready; 503 while it loads, with its progress",
        responses.HealthResponse,
        _ALWAYS,
    ),
    Operation(
        "get",
        "/sessions",
        "list_sessions",
        "sessions",
        "The sessions that are held",
        responses.SessionsResponse,
        _ALWAYS,
    ),
    Operation(
        "delete",
        "/sessions/{session_id}",
        "delete_session",
        "sessions",
        "Forget a session and free its KV cache",
        responses.DeletedResponse,
        (*_ALWAYS, errors.UnknownSession),
        parameters=("session_id",),
    ),
)


@cache
def document() -> Json:
    """The document. It is always the same one, and not to be changed."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "description": _DESCRIPTION, "version": _version()},
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas(_models()),
            "parameters": _PARAMETERS,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The key of VERIFIER_API_KEY. A verifier that has none asks for none.",
                }
            },
        },
    }


def _operation(operation: Operation) -> Json:
    described: Json = {"operationId": operation.name, "tags": [operation.tag], "summary": operation.summary}
    if operation.parameters:
        described["parameters"] = [{"$ref": f"#/components/parameters/{name}"} for name in operation.parameters]
    if operation.request is not None:
        name = operation.request.__name__
        examples = {key: {"value": value} for key, value in REQUESTS[name].items()}
        content = {"application/json": {"schema": {"$ref": PREFIX + name}, "examples": examples}}
        described["requestBody"] = {"required": True, "content": content}
    described["responses"] = {"200": _success(operation)} | _refusals(operation)
    return described


def _success(operation: Operation) -> Json:
    content: Json = {}
    if operation.response is not None:
        name = operation.response.__name__
        content["application/json"] = {"schema": {"$ref": PREFIX + name}, "example": RESPONSES[name]}
    description = "Success."
    if operation.events:
        told = ", ".join(f"`{name}` (data: {data.__name__})" for name, data in operation.events)
        description = (
            f"As server-sent events: {told}; the last one is `end` or `error`. In silence comments come (`:`)."
        )
        if operation.response is not None:
            description = f"JSON; with `stream` the same text as it is written. {description}"
        content["text/event-stream"] = {
            "schema": {"type": "string"},
            "example": EVENTS[operation.path],
            "x-events": {name: {"$ref": PREFIX + data.__name__} for name, data in operation.events},
        }
    success: Json = {"description": description, "content": content}
    if operation.names_session:
        success["headers"] = {
            "X-Session-Id": {"description": "The session's id.", "required": True, "schema": {"type": "string"}}
        }
    return success


def _refusals(operation: Operation) -> Json:
    """The responses other than 200, by status."""
    by_status: dict[int, list[type[SpecPairError]]] = {}
    for error in operation.errors:
        by_status.setdefault(error.status, []).append(error)
    refusals = {str(status): _refusal(status, by_status[status]) for status in sorted(by_status)}
    if operation.response is responses.HealthResponse:
        examples = {"loading": {"value": LOADING}, "failed": {"value": FAILED}}
        content = {"application/json": {"schema": {"$ref": PREFIX + "HealthResponse"}, "examples": examples}}
        refusals["503"] = {"description": "The model is loading, or has failed.", "content": content}
    return refusals


def _refusal(status: int, kinds: list[type[SpecPairError]]) -> Json:
    codes = [kind.code for kind in kinds]
    schema = {
        "allOf": [
            {"$ref": PREFIX + "ErrorResponse"},
            {"type": "object", "properties": {"error": {"properties": {"code": {"enum": codes}}}}},
        ]
    }
    examples = {kind.code: {"value": ERRORS[kind]} for kind in kinds}
    described: Json = {
        "description": f"The error {' or '.join(codes)}.",
        "content": {"application/json": {"schema": schema, "examples": examples}},
    }
    if status == 503:
        described["headers"] = {
            "Retry-After": {
                "description": "Seconds until it is worth asking again; not with model_failed.",
                "schema": {"type": "integer", "minimum": 0},
            }
        }
    return described


def _models() -> set[type[BaseModel]]:
    """All that are referred to."""
    models = {model for operation in OPERATIONS for model in (operation.request, operation.response) if model}
    return models | {data for operation in OPERATIONS for _, data in operation.events} | {responses.ErrorResponse}


def _version() -> str:
    try:
        return version("specpair")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "0"
