"""The errors of the protocol. Either end raises them; the verifier maps them to HTTP, and the client maps them back.

SpecPairError
+-- RequestError                 the request is at fault
|   +-- InvalidRequest, BodyTooLarge, UnsupportedEncoding, RequestTimeout
|   +-- NotFound, MethodNotAllowed, NoWebSocket
|   +-- InvalidHead, HeadTooLarge, Unauthorized, Forbidden, ForeignHost, ForeignOrigin, RateLimited
|   +-- UnknownModel, UnknownResponse
|   +-- EmptyPrompt, PromptTooLong, NoChatTemplate, TokenOutOfRange, TooManyDrafts
|   +-- UnknownSession, SessionConflict, SessionMismatch, ImplicitSessionRefused, SelfContinueRefused
|   +-- FusedUnavailable, ModeUnavailable, OverlapRefused
|   +-- PositionInsidePrompt, PositionBeyondCommitted
+-- ServerError                  the request is valid, but the verifier cannot serve it now
    +-- ModelLoading, ModelFailed, Overloaded, ShuttingDown, EngineError, InternalError
    +-- VerifierAway, ModelMismatch, TargetChanged, BadGateway
"""

import json
from typing import Any, ClassVar, Self

from specpair.protocol.terminal_text import one_line


class SpecPairError(Exception):
    """Base class.

    `code`: stable name on the wire.
    `status`: HTTP status.
    `type`: kind of error, as OpenAI names it.
    `details`: further fields of the error's JSON object, for programs.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    @classmethod
    def at(cls, param: str, what: str, **details: Any) -> Self:
        """The error of a field of a request: its message begins with the name, and `param` is the name."""
        return cls(f"{param}: {what}", param=param, **details)

    def body(self) -> dict[str, Any]:
        """The JSON object of the error, in the shape that OpenAI-style clients parse."""
        return {"error": {"code": self.code, "type": self.type, "message": self.message, **self.details}}


class RequestError(SpecPairError):
    """The request is at fault."""

    type = "invalid_request_error"
    code, status = "bad_request", 422


class InvalidRequest(RequestError):
    """The request is not what the endpoint takes. `param` names the field."""

    code = "invalid_request"


class InvalidHead(RequestError):
    """The request's head does not name one host, names two origins, or its target is no path."""

    code, status = "invalid_head", 400


class HeadTooLarge(RequestError):
    """The request's head has too many bytes or headers, or too many requests were sent ahead of their replies."""

    code, status = "head_too_large", 431


class BodyTooLarge(RequestError):
    """The body is larger than `limit` bytes."""

    code, status = "body_too_large", 413


class UnsupportedEncoding(RequestError):
    """The body is compressed in a way that is not read here."""

    code, status = "unsupported_encoding", 415


class RequestTimeout(RequestError):
    """The head or the body did not arrive in time."""

    code, status = "request_timeout", 408


class Unauthorized(RequestError):
    """The key is missing or wrong."""

    code, status = "unauthorized", 401


class Forbidden(RequestError):
    """The verifier has no key, and the caller is not on this machine or a private network."""

    code, status = "forbidden", 403


class ForeignHost(RequestError):
    """There is no key, and the request is for a name that is not known to be this machine's."""

    code, status = "foreign_host", 403


class ForeignOrigin(RequestError):
    """A web page of another origin sent the request, and that origin is not allowed."""

    code, status = "foreign_origin", 403


class RateLimited(RequestError):
    """The caller's key has reached one of its limits: ask again after `retry_after` seconds."""

    code, status, type = "rate_limited", 429, "requests"  # OpenAI's type; "tokens" for a limit of tokens


class NotFound(RequestError):
    """There is nothing at this path."""

    code, status = "not_found", 404


class MethodNotAllowed(RequestError):
    """The path takes other methods."""

    code, status = "method_not_allowed", 405


class NoWebSocket(RequestError):
    """The request opens a WebSocket, and the services have none."""

    code, status = "no_websocket", 426


class UnknownModel(RequestError):
    """The request names another model than the one that is served."""

    code, status = "model_not_found", 404


class UnknownResponse(RequestError):
    """There is no such response: it was never there, is no longer kept, or is another caller's."""

    code, status = "response_not_found", 404


class EmptyPrompt(RequestError):
    """The prompt has no token."""

    code = "empty_prompt"


class PromptTooLong(RequestError):
    """The prompt has `prompt_len` tokens: more than fit into the context of `context_length` with an answer."""

    code = "prompt_too_long"


class NoChatTemplate(RequestError):
    """The target model has no chat template, or its template cannot be rendered."""

    code = "no_chat_template"


class TokenOutOfRange(RequestError):
    """A token id lies outside of the vocabulary. `param` names it."""

    code = "token_out_of_range"


class TooManyDrafts(RequestError):
    """More draft tokens than `limit`, the most that are judged at once."""

    code = "too_many_drafts"


class UnknownSession(RequestError):
    """The session was never prefilled, was deleted, expired when idle, or made room for another one."""

    code, status = "unknown_session", 404


class SessionConflict(RequestError):
    """The session was opened with another prefill."""

    code, status = "session_conflict", 409


class SessionMismatch(RequestError):
    """The header X-Session-Id and the body name two sessions."""

    code, status = "session_mismatch", 400


class ImplicitSessionRefused(RequestError):
    """The request names no session, and the caller's latest could be another caller's."""

    code = "implicit_session_refused"


class SelfContinueRefused(RequestError):
    """The session was opened without self-continuation."""

    code = "self_continue_refused"


class FusedUnavailable(RequestError):
    """The verifier has no draft model."""

    code = "fused_unavailable"


class ModeUnavailable(RequestError):
    """In the mode that the request names, this service cannot generate the text."""

    code = "mode_unavailable"


class OverlapRefused(RequestError):
    """Another request of the session waits, and the text would depend on which is judged first."""

    code = "overlap_refused"


class PositionInsidePrompt(RequestError):
    """The position lies inside the prompt."""

    code = "position_inside_prompt"


class PositionBeyondCommitted(RequestError):
    """The position lies beyond the `total_tokens` committed tokens."""

    code, status = "position_beyond_committed", 409


class ServerError(SpecPairError):
    """The request is valid, but the verifier cannot serve it now."""

    code = "server_error"


class ModelLoading(ServerError):
    """The model is loading; `progress` is the part that is read."""

    code, status = "model_loading", 503


class ModelFailed(ServerError):
    """The model could not be loaded."""

    code, status = "model_failed", 503


class Overloaded(ServerError):
    """Too much is waiting: ask again after `retry_after` seconds."""

    code, status = "overloaded", 503


class ShuttingDown(ServerError):
    """The verifier is shutting down."""

    code, status = "shutting_down", 503


class EngineError(ServerError):
    """The engine failed."""

    code = "engine_error"


class InternalError(ServerError):
    """A fault of the service; its log says more."""

    code = "internal_error"


class VerifierAway(ServerError):
    """The verifier did not answer, for longer than the drafter waits for it: ask again after `retry_after` seconds."""

    code, status = "verifier_away", 503


class ModelMismatch(ServerError):
    """The verifier serves a model that the drafter cannot draft for: ask again after `retry_after` seconds."""

    code, status = "model_mismatch", 503


class TargetChanged(ServerError):
    """The verifier came to serve another model while this request was served: send it again."""

    code, status = "target_changed", 503


class BadGateway(ServerError):
    """A proxy answers in place of its verifier, which is gone."""

    code, status = "bad_gateway", 502


def _tree(cls: type[SpecPairError]) -> list[type[SpecPairError]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in _tree(sub))]


_GATEWAY = (502, 503, 504)  # statuses of a proxy that does not reach its verifier
_LONGEST_WAIT = 86_400  # seconds that an error may ask to wait before a retry; another value is dropped
_BY_CODE = {cls.code: cls for cls in _tree(SpecPairError)}


def from_body(status: int, content: bytes) -> SpecPairError:
    """The error in the body of a reply. A reply of another shape (a proxy's page, say) becomes a generic error.

    The message becomes one line that is safe for a terminal, because the other end may send anything.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):  # RecursionError: thousands of brackets
        body = None
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        if status in _GATEWAY:
            return BadGateway(f"a proxy answers HTTP {status} in place of the verifier")
        kind = RequestError if 400 <= status < 500 else ServerError
        return kind(f"HTTP {status} without an error the protocol knows: is this a verifier?")
    details = {key: value for key, value in error.items() if key not in ("code", "type", "message")}
    wait = details.get("retry_after", 0)  # seconds; the comparison is false for NaN
    if not isinstance(wait, (int, float)) or not 0 <= wait <= _LONGEST_WAIT:
        del details["retry_after"]
    unknown = RequestError if status < 500 else BadGateway if status in _GATEWAY else ServerError
    known = _BY_CODE.get(str(error.get("code")), unknown)
    return known(one_line(error["message"]), **details)
