"""The errors of the protocol. Verifier and drafter raise them; the verifier maps them to HTTP, the client back.

SpecPairError
+-- RequestError                 the request is at fault
|   +-- InvalidRequest, BodyTooLarge, UnsupportedEncoding, RequestTimeout
|   +-- NotFound, MethodNotAllowed, NoWebSocket
|   +-- InvalidHead, HeadTooLarge, Unauthorized, Forbidden, ForeignHost, ForeignOrigin, RateLimited
|   +-- UnknownModel, UnknownResponse
|   +-- EmptyPrompt, PromptTooLong, NoChatTemplate, TokenOutOfRange, TooManyDrafts
|   +-- UnknownSession, UnknownPrefix, SessionConflict, SessionMismatch, ImplicitSessionRefused, SelfContinueRefused
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
    """Base class. Each subclass states its `code`, and its differences from the base.

    `code`: stable name on the wire.
    `status`: HTTP status.
    `type`: kind of error, as OpenAI names it.
    `details`: further fields of the error's JSON object, for programs.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"

    def __init_subclass__(cls, *, code: str, status: int | None = None, type: str | None = None) -> None:
        cls.code, cls.status, cls.type = code, status or cls.status, type or cls.type

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


class RequestError(SpecPairError, code="bad_request", status=422, type="invalid_request_error"):
    """The request is wrong."""


class InvalidRequest(RequestError, code="invalid_request"):
    """The request does not fit the endpoint. `param` names the field."""


class InvalidHead(RequestError, code="invalid_head", status=400):
    """The request's head does not name one host, names two origins, or its target is no path."""


class HeadTooLarge(RequestError, code="head_too_large", status=431):
    """The request's head has too many bytes or headers, or too many requests were sent ahead of their replies."""


class BodyTooLarge(RequestError, code="body_too_large", status=413):
    """The body is larger than `limit` bytes."""


class UnsupportedEncoding(RequestError, code="unsupported_encoding", status=415):
    """The compression of the body is not supported."""


class RequestTimeout(RequestError, code="request_timeout", status=408):
    """The head or the body did not arrive in time."""


class Unauthorized(RequestError, code="unauthorized", status=401):
    """The key is missing or wrong."""


class Forbidden(RequestError, code="forbidden", status=403):
    """The verifier has no key, and the caller is not on this machine or a private network."""


class ForeignHost(RequestError, code="foreign_host", status=403):
    """There is no key, and the request names a host that is not known as this machine."""


class ForeignOrigin(RequestError, code="foreign_origin", status=403):
    """A web page of another origin sent the request, and that origin is not allowed."""


class RateLimited(RequestError, code="rate_limited", status=429, type="requests"):  # "tokens" for a limit of tokens
    """The caller's key has reached one of its limits: ask again after `retry_after` seconds."""


class NotFound(RequestError, code="not_found", status=404):
    """There is nothing at this path."""


class MethodNotAllowed(RequestError, code="method_not_allowed", status=405):
    """The path takes other methods."""


class NoWebSocket(RequestError, code="no_websocket", status=426):
    """The request opens a WebSocket, which the services do not support."""


class UnknownModel(RequestError, code="model_not_found", status=404):
    """The request names another model than the served one."""


class UnknownResponse(RequestError, code="response_not_found", status=404):
    """There is no such response: it never existed, is no longer stored, or belongs to another caller."""


class EmptyPrompt(RequestError, code="empty_prompt"):
    """The prompt has no token."""


class PromptTooLong(RequestError, code="prompt_too_long"):
    """The prompt has `prompt_len` tokens: more than fit into the context of `context_length` with an answer."""


class NoChatTemplate(RequestError, code="no_chat_template"):
    """The target model has no chat template, or its template cannot be rendered."""


class TokenOutOfRange(RequestError, code="token_out_of_range"):
    """A token id lies outside of the vocabulary. `param` names it."""


class TooManyDrafts(RequestError, code="too_many_drafts"):
    """The request has more draft tokens than `limit`, the most that are judged at once."""


class UnknownSession(RequestError, code="unknown_session", status=404):
    """The session was never prefilled, was deleted, expired when idle, or was replaced by another session."""


class UnknownPrefix(RequestError, code="unknown_prefix", status=409):
    """The text that `prefix` names is not held, or does not begin with these ids: send the whole prompt."""


class SessionConflict(RequestError, code="session_conflict", status=409):
    """The session was opened with another prefill."""


class SessionMismatch(RequestError, code="session_mismatch", status=400):
    """The header X-Session-Id and the body name two sessions."""


class ImplicitSessionRefused(RequestError, code="implicit_session_refused"):
    """The request names no session, and the caller's latest could be another caller's."""


class SelfContinueRefused(RequestError, code="self_continue_refused"):
    """The session was opened without self-continuation."""


class FusedUnavailable(RequestError, code="fused_unavailable"):
    """The verifier has no draft model."""


class ModeUnavailable(RequestError, code="mode_unavailable"):
    """In the mode that the request names, this service cannot generate the text."""


class OverlapRefused(RequestError, code="overlap_refused"):
    """Another request of the session waits, and the text would depend on the order of the two."""


class PositionInsidePrompt(RequestError, code="position_inside_prompt"):
    """The position lies inside the prompt."""


class PositionBeyondCommitted(RequestError, code="position_beyond_committed", status=409):
    """The position lies beyond the `total_tokens` committed tokens."""


class ServerError(SpecPairError, code="server_error"):
    """The request is valid, but the verifier cannot serve it now."""


class ModelLoading(ServerError, code="model_loading", status=503):
    """The model is loading; `progress` is the part that is read."""


class ModelFailed(ServerError, code="model_failed", status=503):
    """The model could not be loaded."""


class Overloaded(ServerError, code="overloaded", status=503):
    """Too many requests wait: ask again after `retry_after` seconds."""


class ShuttingDown(ServerError, code="shutting_down", status=503):
    """The verifier is shutting down."""


class EngineError(ServerError, code="engine_error"):
    """The engine failed."""


class InternalError(ServerError, code="internal_error"):
    """A fault of the service; its log says more."""


class VerifierAway(ServerError, code="verifier_away", status=503):
    """The verifier did not answer, for longer than the drafter waits for it: ask again after `retry_after` seconds."""


class ModelMismatch(ServerError, code="model_mismatch", status=503):
    """The verifier serves a model that the drafter cannot draft for: ask again after `retry_after` seconds."""


class TargetChanged(ServerError, code="target_changed", status=503):
    """The verifier came to serve another model while this request was served: send it again."""


class BadGateway(ServerError, code="bad_gateway", status=502):
    """A proxy answers in place of its verifier, which is gone."""


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
