"""The format of log records: lines of text or of JSON, each with the ids of the request and of the session."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from uvicorn.logging import DefaultFormatter

from specpair.http_service.observability.request_context import current
from specpair.http_service.options.service_options import LogFormat as LogFormat

FIELDS = "fields"  # attribute of a record: a dictionary of further keys of the JSON object


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
    """The ids that are known, by the names of their keys."""
    context = current()
    found = {
        "request_id": getattr(record, "request_id", "" if context is None else context.request_id),
        "session_id": getattr(record, "session_id", "" if context is None else context.session_id),
    }
    return {name: value for name, value in found.items() if value}
