"""The endpoints: path, function, request, response and errors of each."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from speculation import errors
from speculation.errors import SpecPairError
from speculation.protocol import messages, responses, service_responses
from verifier_server.api import routes
from verifier_server.api.openapi.examples import METRICS

Errors = tuple[type[SpecPairError], ...]

_MODEL: Errors = (errors.ModelLoading, errors.ModelFailed)  # errors while there is no model
_ALWAYS: Errors = (
    *(errors.Unauthorized, errors.Forbidden, errors.ForeignOrigin, errors.InternalError, errors.ShuttingDown),
)
_BODY: Errors = (errors.BodyTooLarge, errors.InvalidRequest, errors.RequestTimeout, errors.RateLimited)
_PROMPT: Errors = (errors.EmptyPrompt, errors.PromptTooLong, errors.TokenOutOfRange)
_ENGINE: Errors = (errors.EngineError, errors.Overloaded)


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint, as it is registered and as the OpenAPI document describes it."""

    method: str
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]  # its name is the operationId, its docstring the description
    tag: str
    response: type[BaseModel] | None  # None: a stream, or `text`
    errors: Errors
    request: type[BaseModel] | None = None
    parameters: tuple[str, ...] = ()  # X-Session-Id is also a header of the reply
    events: tuple[tuple[str, type[BaseModel]], ...] = ()  # names of a stream's events, with the models of their data
    text: str = ""  # an example of the response, if that is plain text
    needs_key: bool = True  # whether it needs the API key, if the verifier has one


OPERATIONS = (
    Operation(
        "POST",
        "/prefill",
        routes.prefill,
        "speculation",
        responses.PrefillResponse,
        (
            *(*_ALWAYS, *_BODY, *_PROMPT, *_MODEL, *_ENGINE),
            *(errors.SessionMismatch, errors.SessionConflict, errors.UnknownSession, errors.OverlapRefused),
        ),
        request=messages.PrefillRequest,
        parameters=("X-Session-Id",),
    ),
    Operation(
        "POST",
        "/verify",
        routes.verify,
        "speculation",
        responses.VerifyResponse,
        (
            *(*_ALWAYS, *_BODY, *_MODEL, *_ENGINE, errors.SessionMismatch, errors.UnknownSession),
            *(errors.TokenOutOfRange, errors.TooManyDrafts, errors.OverlapRefused, errors.PositionInsidePrompt),
            *(errors.PositionBeyondCommitted, errors.ImplicitSessionRefused, errors.SelfContinueRefused),
        ),
        request=messages.VerifyRequest,
        parameters=("X-Session-Id",),
    ),
    Operation(
        "POST",
        "/verify/batch",
        routes.verify_batch,
        "speculation",
        responses.BatchResponse,
        (*_ALWAYS, *_BODY, *_MODEL),
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
        events=(
            ("tokens", responses.StreamedTokens),
            ("end", responses.StreamEnd),
            ("error", responses.ErrorResponse),
        ),
    ),
    Operation(
        "POST",
        "/generate",
        routes.generate,
        "texts",
        responses.GenerateResponse,
        (
            *(*_ALWAYS, *_BODY, *_PROMPT, *_MODEL, *_ENGINE, errors.FusedUnavailable),
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
        "POST",
        "/tokenize",
        routes.tokenize,
        "model",
        service_responses.TokenizeResponse,
        (*_ALWAYS, *_BODY, *_MODEL, errors.PromptTooLong),
        request=messages.TokenizeRequest,
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
        "/health",
        routes.get_health,
        "model",
        service_responses.HealthResponse,
        (errors.InternalError,),
        needs_key=False,
    ),
    Operation(
        "GET",
        "/live",
        routes.get_live,
        "operation",
        service_responses.LiveResponse,
        (errors.InternalError,),
        needs_key=False,
    ),
    Operation(
        "GET",
        "/ready",
        routes.get_ready,
        "operation",
        service_responses.ReadyResponse,
        (errors.InternalError,),
        needs_key=False,
    ),
    Operation(
        "GET",
        "/metrics",
        routes.get_metrics,
        "operation",
        None,
        _ALWAYS,
        text=METRICS,
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
        "/usage",
        routes.get_usage,
        "operation",
        service_responses.UsageResponse,
        _ALWAYS,
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


def add_to(app: FastAPI) -> None:
    """Register every endpoint but `/verify`, which `entrance` serves."""
    for operation in OPERATIONS:
        if operation.endpoint is not routes.verify:
            app.add_api_route(operation.path, operation.endpoint, methods=[operation.method])
