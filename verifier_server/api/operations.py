"""The endpoints of the verifier: path, function, request, response and errors of each."""

from fastapi import FastAPI

from gateway.anthropic_api.endpoints import MessageEndpoints
from gateway.anthropic_api.operations import message_operations
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.operations import openai_operations
from gateway.openai_api.responses.endpoints import ResponseEndpoints
from gateway.openai_api.responses.operations import response_operations
from gateway.openai_api.texts import TextSource
from gateway.openai_api.tokens import TokenEndpoints, token_operations
from specpair.http_service.observability.health import StateEndpoints
from specpair.http_service.openapi import operation
from specpair.http_service.openapi.operation import ALWAYS, BODY, Errors, Json, Operation
from specpair.http_service.openapi.state import state_operations
from specpair.protocol import errors, messages, responses, service_responses
from verifier_server.api import routes
from verifier_server.live import messages as live
from verifier_server.live.endpoints import LiveEndpoints

_MODEL: Errors = (errors.ModelLoading, errors.ModelFailed)  # errors while there is no model
_ALWAYS: Errors = (*ALWAYS, errors.ShuttingDown)
_PROMPT: Errors = (errors.EmptyPrompt, errors.PromptTooLong, errors.TokenOutOfRange)
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

_NEWS = (
    ("tokens", responses.StreamedTokens),
    ("end", responses.StreamEnd),
    ("error", responses.ErrorResponse),
)  # events of a session's stream

VERIFY = Operation(
    "POST",
    "/verify",
    routes.verify,
    "speculation",
    responses.VerifyResponse,
    (
        *(*_ALWAYS, *BODY, *_MODEL, *_ENGINE, errors.SessionMismatch, errors.UnknownSession),
        *(errors.TokenOutOfRange, errors.TooManyDrafts, errors.OverlapRefused, errors.PositionInsidePrompt),
        *(errors.PositionBeyondCommitted, errors.ImplicitSessionRefused, errors.SelfContinueRefused),
    ),
    request=messages.VerifyRequest,
    parameters=("X-Session-Id",),
)
_OWN = (
    Operation(
        "POST",
        "/prefill",
        routes.prefill,
        "speculation",
        responses.PrefillResponse,
        (
            *(*_ALWAYS, *BODY, *_PROMPT, *_MODEL, *_ENGINE),
            *(errors.SessionMismatch, errors.SessionConflict, errors.UnknownSession, errors.OverlapRefused),
        ),
        request=messages.PrefillRequest,
        parameters=("X-Session-Id",),
        events=(("open", responses.PrefillResponse), *_NEWS),
        links=_AFTER_PREFILL,
    ),
    VERIFY,
    Operation(
        "POST",
        "/verify/batch",
        routes.verify_batch,
        "speculation",
        responses.BatchResponse,
        (*_ALWAYS, *BODY, *_MODEL),
        request=messages.BatchRequest,
    ),
    Operation(
        "GET",
        "/sessions/{session_id}/stream",
        routes.stream_session,
        "sessions",
        None,
        (
            *(*_ALWAYS, *_MODEL, errors.Overloaded, errors.InvalidRequest, errors.UnknownSession),
            *(errors.PositionInsidePrompt, errors.PositionBeyondCommitted),
        ),
        parameters=("session_id", "from"),
        events=_NEWS,
    ),
    Operation(
        "POST",
        "/generate",
        routes.generate,
        "texts",
        responses.GenerateResponse,
        (
            *(*_ALWAYS, *BODY, *_PROMPT, *_MODEL, *_ENGINE, errors.FusedUnavailable),
            *(errors.SessionMismatch, errors.SessionConflict, errors.UnknownSession),
        ),
        request=messages.GenerateRequest,
        parameters=("X-Session-Id",),
        events=(
            ("open", responses.GenerateOpenEvent),
            ("tokens", responses.GenerateTokensEvent),
            ("end", responses.GenerateResponse),
            ("error", responses.ErrorResponse),
        ),
    ),
    Operation(
        "GET",
        "/model",
        routes.get_model,
        "model",
        service_responses.ModelInfo,
        (*_ALWAYS, *_MODEL, errors.InvalidRequest),
        parameters=("below",),
    ),
    Operation(
        "GET",
        "/vocabulary",
        routes.get_vocabulary,
        "model",
        service_responses.VocabularyResponse,
        (*_ALWAYS, *_MODEL),
    ),
    Operation(
        "GET",
        "/sessions",
        routes.list_sessions,
        "sessions",
        service_responses.SessionsResponse,
        _ALWAYS,
    ),
    Operation(
        "GET",
        "/sessions/{session_id}",
        routes.get_session,
        "sessions",
        service_responses.SessionInfo,
        (*_ALWAYS, *_MODEL, errors.UnknownSession),
        parameters=("session_id",),
    ),
    Operation(
        "DELETE",
        "/sessions/{session_id}",
        routes.delete_session,
        "sessions",
        service_responses.DeletedResponse,
        (*_ALWAYS, errors.UnknownSession),
        parameters=("session_id",),
    ),
)
OPENAI = openai_operations((*_ALWAYS, *_MODEL), _ENGINE)
RESPONSES = response_operations((*_ALWAYS, *_MODEL), _ENGINE)
MESSAGES = message_operations((*_ALWAYS, *_MODEL), _ENGINE)
TOKENS = token_operations((*_ALWAYS, *_MODEL), ())
STATE = state_operations(_ALWAYS)
LIVE = (
    Operation(
        "GET",
        "/events",
        LiveEndpoints.watch_verifier,
        "operation",
        None,
        (*_ALWAYS, errors.Overloaded),
        events=(
            ("state", live.VerifierState),
            ("sessions", live.ToldSessions),
            ("usage", service_responses.UsageResponse),
            ("passes", live.ToldPasses),
            ("ended", live.ToldSessions),
        ),
        last=(),
    ),
)
OPERATIONS = (*_OWN, *TOKENS, *STATE, *LIVE, *OPENAI, *RESPONSES, *MESSAGES)


def add_to(
    app: FastAPI, state: StateEndpoints, live_endpoints: LiveEndpoints, openai_endpoints: Endpoints, source: TextSource
) -> None:
    """Register every endpoint. `source`: of the texts of OpenAI's endpoints."""
    operation.add_to(app, _OWN)
    operation.add_to(app, TOKENS, TokenEndpoints(source, openai_endpoints.prompts))
    operation.add_to(app, STATE, state)
    operation.add_to(app, LIVE, live_endpoints)
    operation.add_to(app, OPENAI, openai_endpoints)
    operation.add_to(app, RESPONSES, ResponseEndpoints(source, openai_endpoints))
    operation.add_to(app, MESSAGES, MessageEndpoints(source, openai_endpoints))
