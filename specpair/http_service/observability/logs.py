"""Logs of services: the format of records, with the ids of request and session, and the line of an ended text."""

import json
import logging
import random
import re
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from uvicorn.logging import DefaultFormatter

from specpair.http_service.options import LogFormat as LogFormat
from specpair.numbers import counted

HEADER = b"x-request-id"
_SANE = re.compile(rb"[!-~]{1,128}")
FIELDS = "fields"  # attribute of a record: a dictionary of further keys of the JSON object
_log = logging.getLogger("specpair.texts")
_random = random.Random()  # ids need not be secret, and the system's random numbers let go of the GIL
INTERRUPT = "interrupt"  # what a text was ended by whose client left, or deleted its session, as drafters do


@dataclass(slots=True)
class RequestContext:
    """A request that is being served. Fields with defaults are filled in later."""

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
    if (context := _current.get()) is not None:
        context.session_id = session_id


def note_key(name: str) -> None:
    if (context := _current.get()) is not None:
        context.key = name


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The value of the header X-Request-Id if it is 1 to 128 printable characters of ASCII without a space, else a new
    id."""
    for name, value in headers:
        if name == HEADER and _SANE.fullmatch(value):
            return value.decode()
    return f"{_random.getrandbits(64):016x}"


class PlainFormatter(DefaultFormatter):
    """`INFO:     message [request ID, session ID]`, in a terminal with uvicorn's colours."""

    def __init__(self) -> None:
        super().__init__("%(levelprefix)s %(message)s", use_colors=sys.stderr is not None and sys.stderr.isatty())

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        ids = ", ".join(f"{name.removesuffix('_id')} {value}" for name, value in _ids(record).items())
        return super().formatMessage(record) + (f" [{ids}]" if ids else "")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (ISO 8601, UTC), level, logger, message, and what else is known."""

    def format(self, record: logging.LogRecord) -> str:
        body: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_ids(record),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            body["exception"] = self.formatException(record.exc_info)
        return json.dumps(body)


_FORMATTERS: dict[LogFormat, type[logging.Formatter]] = {"text": PlainFormatter, "json": JsonFormatter}


def configure(log_format: LogFormat) -> None:
    """Have every logger of the process, uvicorn's included, write to standard error in this format.

    uvicorn writes no access lines of its own any more: `ObservedRequests` writes them.
    """
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
        root.setLevel(logging.INFO)
    for handler in root.handlers:
        handler.setFormatter(_FORMATTERS[log_format]())
    uvicorn = logging.getLogger("uvicorn")
    uvicorn.handlers.clear()
    uvicorn.propagate = True
    for client in ("httpx", "httpx2"):  # they would log each request, with signed addresses of a hub's files
        logging.getLogger(client).setLevel(logging.WARNING)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False  # without a handler, uvicorn does not make the records at all


def of_session(session_id: str) -> dict[str, str]:
    """The argument `extra` for a record about this session, where no request is current."""
    return {"session_id": session_id}


def _ids(record: logging.LogRecord) -> dict[str, str]:
    context = current() or RequestContext("")
    found = {name: getattr(record, name, getattr(context, name)) for name in ("request_id", "session_id")}
    return {name: value for name, value in found.items() if value}


def log_ended_text(
    prompt_tokens: int,
    generated_tokens: int,
    seconds: float,
    drafted: int,
    accepted: int,
    *,
    mode: str,
    ended_by: str,
    reason: str = "",
    session_id: str = "",
) -> None:
    """Log the line of an ended text.

    `seconds`: from its request to its last token.
    `mode`: which machine drafted.
    `reason`: the error that ended it; empty: none did.
    `session_id`: of the text, where no request is current.
    """
    rate = generated_tokens / seconds if seconds > 0 else None
    share = accepted / drafted if drafted else None
    fields: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "generated_tokens": generated_tokens,
        "tokens_per_second": None if rate is None else round(rate, 2),
        "acceptance_rate": None if share is None else round(share, 4),
        "mode": mode,
        "ended_by": ended_by,
        **({"reason": reason} if reason else {}),
    }
    _log.info(
        "%s, %s tokens/s, acceptance rate %s, mode %s, ended by %s",
        counted(generated_tokens, "token"),
        "-" if rate is None else f"{rate:.1f}",
        "-" if share is None else f"{share:.1%}",
        mode,
        f"{ended_by}: {reason}" if reason else ended_by,
        extra={FIELDS: fields, **(of_session(session_id) if session_id else {})},
    )
