"""What is known about the request that is being served, for the log records that it causes."""

import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

HEADER = b"x-request-id"
_SANE = re.compile(rb"[!-~]{1,128}")


@dataclass(slots=True)
class RequestContext:
    """A request that is being served. The fields with defaults are filled in as they become known."""

    request_id: str
    session_id: str = ""
    key: str = ""  # the name of the caller's key


_current: ContextVar[RequestContext | None] = ContextVar("request", default=None)


def enter(context: RequestContext) -> None:
    """Make `context` the current one in the present task, and in tasks that it starts from now on."""
    _current.set(context)


def current() -> RequestContext | None:
    """The request that the present task serves; None: there is none, as in a thread of the engine."""
    return _current.get()


def note_session(session_id: str) -> None:
    """Note the session that the current request is about."""
    if (context := _current.get()) is not None:
        context.session_id = session_id


def note_key(name: str) -> None:
    """Note the name of the current caller's key."""
    if (context := _current.get()) is not None:
        context.key = name


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The value of the header X-Request-Id if it is 1 to 128 printable characters of ASCII without a space, else a new
    id."""
    for name, value in headers:
        if name == HEADER and _SANE.fullmatch(value):
            return value.decode()
    return secrets.token_hex(8)
