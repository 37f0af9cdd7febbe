"""The endpoints as the OpenAPI document lists them: request, response and errors of each."""

from dataclasses import dataclass

from pydantic import BaseModel

from speculation import errors
from speculation.errors import SpecPairError
from speculation.protocol import messages, responses, service_responses

Errors = tuple[type[SpecPairError], ...]

_MODEL: Errors = (errors.ModelLoading, errors.ModelFailed)  # errors while there is no model
_ALWAYS: Errors = (errors.Unauthorized, errors.Forbidden, errors.InternalError, errors.ShuttingDown)
_BODY: Errors = (errors.BodyTooLarge, errors.InvalidRequest, errors.RequestTimeout)
_PROMPT: Errors = (errors.EmptyPrompt, errors.PromptTooLong, errors.TokenOutOfRange)
_ENGINE: Errors = (errors.EngineError, errors.Overloaded)


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint in the document."""

    method: str
    path: str
    name: str  # the operationId
    tag: str
    summary: str
    response: type[BaseModel] | None  # None: always a stream
    errors: Errors
    request: type[BaseModel] | None = None
    parameters: tuple[str, ...] = ()
    events: tuple[tuple[str, type[BaseModel]], ...] = ()  # names of a stream's events, with the models of their data
    names_session: bool = False  # whether the reply carries X-Session-Id
    needs_key: bool = True  # whether it needs the API key, if the verifier has one


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
        "Verify draft tokens against the target model and get the tokens that are committed now",
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
        "Verify drafts of several sessions: one result or error for each item, in order",
        responses.BatchResponse,
        (*_ALWAYS, *_BODY, *_MODEL),
        request=messages.BatchRequest,
    ),
    Operation(
        "get",
        "/sessions/{session_id}/stream",
        "stream_session",
        "sessions",
        "Stream the committed tokens of a session as server-sent events",
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
        "post",
        "/generate",
        "generate",
        "texts",
        "Generate a whole text, with or without server-side drafting",
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
        "Token ids of a text by the target's tokenizer",
        service_responses.TokenizeResponse,
        (*_ALWAYS, *_BODY, *_MODEL, errors.PromptTooLong),
        request=messages.TokenizeRequest,
    ),
    Operation(
        "get",
        "/model",
        "get_model",
        "model",
        "The model: limits, costs, vocabulary fingerprints, chat template",
        service_responses.ModelInfo,
        (*_ALWAYS, *_MODEL, errors.InvalidRequest),
        parameters=("below",),
    ),
    Operation(
        "get",
        "/vocabulary",
        "get_vocabulary",
        "model",
        "The bytes and the class of every token id",
        service_responses.VocabularyResponse,
        (*_ALWAYS, *_MODEL),
    ),
    Operation(
        "get",
        "/health",
        "get_health",
        "model",
        "Whether the model is ready; 503 while it loads, with its progress",
        service_responses.HealthResponse,
        (errors.InternalError,),
        needs_key=False,
    ),
    Operation(
        "get",
        "/sessions",
        "list_sessions",
        "sessions",
        "The sessions of the key; without a key, all sessions, but not their ids",
        service_responses.SessionsResponse,
        _ALWAYS,
    ),
    Operation(
        "delete",
        "/sessions/{session_id}",
        "delete_session",
        "sessions",
        "Delete a session and free its KV cache",
        service_responses.DeletedResponse,
        (*_ALWAYS, errors.UnknownSession),
        parameters=("session_id",),
    ),
)
