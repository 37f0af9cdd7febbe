"""The head of an HTTP/1.1 request, and the parser of its reply, within bounds: for the connections of this project
that are measured, and so do without a client library."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, NamedTuple

import httptools

MOST_OF_A_HEAD = 100 * 1024  # bytes of a head, and of all that comes between two heads or pieces of a body
MOST_HEADERS = 100
_SEPARATORS = 4  # bytes of a header beside its name and its value
_WITHOUT_BODY = (204, 304)


class ReplyError(Exception):
    """The received bytes are no complete reply of HTTP/1.1. The message has the reason."""


class HeadTooLong(ReplyError):
    """There are more than `MOST_OF_A_HEAD` bytes without an end of a head, or more than `MOST_HEADERS` headers."""


class ReplyHead(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]  # names in lower case


def request_head(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a request, with the blank line at its end. `target`: path and query."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target), *(b"%b: %b\r\n" % header for header in headers)]
    return b"".join([*lines, b"\r\n"])


class ReplyParser:
    """Parses the reply to one request other than HEAD. The methods that begin with `on_` are called by httptools.

    Interim responses (1xx) and trailers are skipped. What comes behind the reply is no part of it.
    """

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._refusal: ReplyError | None = None  # what the parser was stopped for
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []  # of the body, not taken yet
        self._between = 0  # bytes since the last piece of a body, or since the begin
        self._framed = False  # whether the head says where the body ends
        self._keeps = False  # whether the other end keeps the connection
        self._extra = False  # whether bytes came behind the end
        self.head: ReplyHead | None = None
        self.within_head = False  # whether a part of a head has come, without its end
        self.complete = False
        self.held = 0  # bytes of the body that are not taken yet
        self.version, self.reason = "", b""

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another exchange."""
        return self.complete and self._keeps and not self._extra

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises ReplyError."""
        if self._parser is None:
            self._extra = True
            return
        self._between += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                raise self._refusal or ReplyError(f"what came is no HTTP/1.1 ({error})") from None
            self._extra = True
        finally:
            if self.complete:
                self.end()
        if self._between > MOST_OF_A_HEAD and not self.complete:
            raise _too_long()

    def end_of_input(self) -> None:
        """The connection was closed, which ends a reply without a length. Raises ReplyError if the reply is
        incomplete."""
        if self.head is None or (self._framed and not self.complete):
            raise ReplyError(f"the connection was closed {'before' if self.head is None else 'within'} the reply")
        self.complete = True
        self.end()

    def end(self) -> None:
        """Parse no more. This breaks the reference cycle with the parser."""
        self._parser = None

    def take(self) -> bytes:
        """The body that has come since the last call."""
        taken = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self.held = 0
        return taken

    def on_message_begin(self) -> None:
        if self.complete:
            self._stop(ReplyError("there is more than the reply"))
        self.within_head = True

    def on_status(self, part: bytes) -> None:
        self.reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # else it is a trailer
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.within_head = False
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if version not in ("1.0", "1.1") or status == 101 or not 100 <= status < 600:
            self._stop(ReplyError(f"what came is no HTTP/1.1 (status {status}, version {version})"))
        size, codings, has_length = 0, [], False
        for name, value in self._headers:
            size += len(name) + len(value) + _SEPARATORS
            if name == b"transfer-encoding":
                codings.append(value.strip().lower())
            elif name == b"content-length":
                has_length = True
        if size > MOST_OF_A_HEAD or len(self._headers) > MOST_HEADERS:
            self._stop(_too_long())
        if status < 200:
            self._headers, self.reason = [], b""
            return
        if codings and (codings != [b"chunked"] or version != "1.1"):
            self._stop(ReplyError(f"what came has a transfer coding that is not known here ({b', '.join(codings)!r})"))
        self.head, self.version, self._between = ReplyHead(status, self._headers), version, 0
        self._framed = status in _WITHOUT_BODY or bool(codings) or has_length
        self._keeps = self._framed and self._parser.should_keep_alive()

    def on_body(self, part: bytes) -> None:
        self._between = 0
        self._pieces.append(part)
        self.held += len(part)

    def on_message_complete(self) -> None:
        self.complete = self.head is not None

    def _stop(self, refusal: ReplyError) -> None:
        """Stop the parser, which called a method of this object."""
        self._refusal = refusal
        raise refusal


def _too_long() -> HeadTooLong:
    return HeadTooLong(f"the reply has a head of more than {MOST_OF_A_HEAD} bytes or {MOST_HEADERS} headers")


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
