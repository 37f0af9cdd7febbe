"""The endpoints of the verifier: path, function, request, response and errors of each."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from gateway import operations as text_operations
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.texts import TextSource
from specpair.http_service.observability.health import StateEndpoints, state_operations
from specpair.http_service.openapi import operation
from specpair.http_service.openapi.operation import ALWAYS, BODY, Errors, Json, Operation, parameter
from specpair.protocol import errors, messages, responses
from specpair.protocol import service_responses as replies
from specpair.protocol.responses import ErrorResponse
from verifier_server.api import examples, routes
from verifier_server.api.live_events import LiveEvents, PassesMessage, SessionsMessage, VerifierState

_ID: Json = {"type": "string", "pattern": messages.SESSION_ID}
_POSITION: Json = {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**9}
_SESSION_ID = parameter("session_id", "path", "Id of a session, from the reply to its prefill.", _ID, "demo")
_SESSION_HEADER = parameter(
    "X-Session-Id",
    "header",
    "The session's id, for routers that hash on a header. It can replace `session_id` in the body, and must not "
    "contradict it.",
    _ID,
)
_FROM = parameter("from", "query", "Position of the first token to send. Default: the end of the prompt.", _POSITION, 5)
_COVERED = "How many token ids, from the first on, the fingerprints cover. Default: all."
_BELOW = parameter("below", "query", _COVERED, _POSITION, 4096)
_MODEL: Errors = (errors.ModelLoading, errors.ModelFailed)  # errors while there is no model
_ALWAYS: Errors = (*ALWAYS, errors.ShuttingDown)
_PROMPT: Errors = (errors.EmptyPrompt, errors.PromptTooLong, errors.TokenOutOfRange, errors.UnknownPrefix)
_ENGINE: Errors = (errors.EngineError, errors.Overloaded)
_SESSION = "$response.body#/session_id"
_AFTER_PREFILL: Json = {
    "verify": {
        "operationId": "verify",
        "requestBody": {"session_id": _SESSION, "position": "$response.body#/total_tokens", "draft_tokens": []},
    },
    "stream": {"operationId": "stream_session", "parameters": {"path.session_id": _SESSION}},
    "delete": {"operationId": "delete_session", "parameters": {"path.session_id": _SESSION}},
}

_NEWS = (("tokens", responses.StreamedTokens), ("end", responses.StreamEnd), ("error", ErrorResponse))
_READ: Errors = (*_ALWAYS, *_MODEL)
_WRITE: Errors = (*_READ, *BODY, *_ENGINE, errors.SessionMismatch, errors.UnknownSession)
_POSITIONS: Errors = (errors.PositionInsidePrompt, errors.PositionBeyondCommitted)

VERIFY = Operation(
    *("POST", "/verify", routes.verify, "speculation", responses.VerifyResponse),
    (
        *(*_WRITE, *_POSITIONS, errors.TokenOutOfRange, errors.TooManyDrafts, errors.OverlapRefused),
        *(errors.ImplicitSessionRefused, errors.SelfContinueRefused),
    ),
    request=messages.VerifyRequest,
    examples=examples.VERIFIES,
    example=examples.VERIFIED,
    parameters=(_SESSION_HEADER,),
)
_OWN = (
    Operation(
        *("POST", "/prefill", routes.prefill, "speculation", responses.PrefillResponse),
        (*_WRITE, *_PROMPT, errors.SessionConflict, errors.OverlapRefused),
        request=messages.PrefillRequest,
        examples=examples.PREFILLS,
        example=examples.PREFILLED,
        parameters=(_SESSION_HEADER,),
        events=(("open", responses.PrefillResponse), *_NEWS),
        links=_AFTER_PREFILL,
    ),
    VERIFY,
    Operation(
        *("POST", "/verify/batch", routes.verify_batch, "speculation", responses.BatchResponse, (*_READ, *BODY)),
        request=messages.BatchRequest,
        examples=examples.BATCHES,
    ),
    Operation(
        *("GET", "/sessions/{session_id}/stream", routes.stream_session, "sessions", None),
        (*_READ, *_POSITIONS, errors.Overloaded, errors.InvalidRequest, errors.UnknownSession),
        parameters=(_SESSION_ID, _FROM),
        events=_NEWS,
    ),
    Operation(
        *("POST", "/generate", routes.generate, "texts", responses.GenerateResponse),
        (*_WRITE, *_PROMPT, errors.FusedUnavailable, errors.SessionConflict),
        request=messages.GenerateRequest,
        examples=examples.GENERATES,
        example=examples.TEXT,
        parameters=(_SESSION_HEADER,),
        events=(
            *(("open", responses.GenerateOpenEvent), ("tokens", responses.GenerateTokensEvent)),
            *(("end", responses.GenerateResponse), ("error", ErrorResponse)),
        ),
    ),
    Operation(
        *("GET", "/model", routes.get_model, "model", replies.ModelInfo, (*_READ, errors.InvalidRequest)),
        parameters=(_BELOW,),
    ),
    Operation("GET", "/vocabulary", routes.get_vocabulary, "model", replies.VocabularyResponse, _READ),
    Operation("GET", "/sessions", routes.list_sessions, "sessions", replies.SessionsResponse, _ALWAYS),
    Operation(
        *("GET", "/sessions/{session_id}", routes.get_session, "sessions", replies.SessionInfo),
        (*_READ, errors.UnknownSession),
        parameters=(_SESSION_ID,),
    ),
    Operation(
        *("DELETE", "/sessions/{session_id}", routes.delete_session, "sessions", replies.DeletedResponse),
        (*_ALWAYS, errors.UnknownSession),
        example={"session_id": "demo", "deleted": True},
        parameters=(_SESSION_ID,),
    ),
)
# Of the bodies of the verifier's own requests, by path.
SCHEMAS: Mapping[str, Any] = {each.path: each.request for each in _OWN if each.request is not None}
TEXTS = text_operations.text_operations((*_ALWAYS, *_MODEL), _ENGINE, ())
STATE = state_operations(_ALWAYS)
LIVE = (
    Operation(
        *("GET", "/events", LiveEvents.watch_verifier, "operation", None, (*_ALWAYS, errors.Overloaded)),
        events=(
            *(("state", VerifierState), ("sessions", SessionsMessage), ("usage", replies.UsageResponse)),
            *(("passes", PassesMessage), ("ended", SessionsMessage)),
        ),
        last=(),
    ),
)
OPERATIONS = (*_OWN, *TEXTS, *STATE, *LIVE)


def add_to(
    app: FastAPI, state: StateEndpoints, live_endpoints: LiveEvents, openai_endpoints: Endpoints, source: TextSource
) -> None:
    """Register every endpoint. `source`: generates the texts of OpenAI's endpoints."""
    operation.add_to(app, (*_OWN, *STATE, *LIVE), state, live_endpoints)
    text_operations.add_to(app, TEXTS, openai_endpoints, source)
