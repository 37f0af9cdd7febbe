"""The endpoints as the OpenAPI document lists them: what each takes, what it answers, and which errors it gives."""

from dataclasses import dataclass

from pydantic import BaseModel

from speculation import errors
from speculation.errors import SpecPairError
from speculation.protocol import messages, responses

Errors = tuple[type[SpecPairError], ...]

_MODEL: Errors = (errors.ModelLoading, errors.ModelFailed)  # until the model is there
_ALWAYS: Errors = (errors.Unauthorized, errors.Forbidden, errors.InternalError, errors.ShuttingDown)
_BODY: Errors = (errors.BodyTooLarge, errors.InvalidRequest, errors.RequestTimeout)
_PROMPT: Errors = (errors.EmptyPrompt, errors.PromptTooLong, errors.TokenOutOfRange)
_ENGINE: Errors = (errors.EngineError, errors.Overloaded)


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
    needs_key: bool = True  # where there is one


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
        request=messages.PrefillRequest,
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
        request=messages.VerifyRequest,
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
        request=messages.BatchRequest,
    ),
    Operation(
        "get",
        "/sessions/{session_id}/stream",
        "stream_session",
        "sessions",
        "Committed tokens of a session as they come, as server-sent events",
        None,
        (
            *(*_ALWAYS, *_MODEL, errors.Overloaded, errors.InvalidRequest, errors.UnknownSession),
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
        (
            *(*_ALWAYS, *_BODY, *_PROMPT, *_MODEL, *_ENGINE, errors.FusedUnavailable),
            *(errors.SessionMismatch, errors.SessionConflict, errors.UnknownSession),
        ),
        request=messages.GenerateRequest,
        parameters=("X-Session-Id",),
        names_session=True,
        events=(
            ("open", responses.GenerateOpenEvent),
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
        request=messages.TokenizeRequest,
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
        (errors.InternalError,),
        needs_key=False,
    ),
    Operation(
        "get",
        "/sessions",
        "list_sessions",
        "sessions",
        "The sessions of the key; without a key all that are held, but not their ids",
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
