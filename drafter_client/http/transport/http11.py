"""A connection for HTTP/1.1 whose responses httptools parses.

httpcore's own parses with h11, which is written in Python. With it, an exchange takes the drafter's processor half as
long again or twice as long, and a draft waits for that twice: when the answer before it is read, and when it is sent.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpcore
import httptools
import httpx

_READ = 64 * 1024  # bytes, at most, of one read
MOST_OF_A_HEAD = 100 * 1024  # bytes, also of trailers, and of what else is no body; httptools has no limit of its own
_INFORMATIONAL = range(100, 200)
_WITHOUT_BODY = (204, 304)


class HeadTooLong(Exception):
    """A response's head has more than `MOST_OF_A_HEAD` bytes; the cause of a RemoteProtocolError."""


class Http11Connection:
    """One exchange at a time over `stream`. Raises the errors of httpcore.

    A request's body must have the length that its headers say.
    """

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        limits = request.extensions["timeout"]
        reader = _Reader(self._stream, limits)
        try:
            with suppress(httpcore.WriteError):  # a server may refuse a request before it has all of it, and say why
                self._stream.write(_head(request), limits["write"])
                for part in request.stream:  # type: ignore[union-attr]
                    self._stream.write(part, limits["write"])
            reader.read_head()
        except BaseException:
            reader.end()
            self.close()
            raise
        return httpx.Response(
            reader.status,
            headers=reader.headers,
            stream=_Content(reader.body(), lambda: self._over(reader)),
            extensions={
                "http_version": b"HTTP/" + reader.version.encode(),
                "reason_phrase": reader.reason,
                "network_stream": self._stream,
            },
        )

    def _over(self, reader: "_Reader") -> None:
        reader.end()
        if not reader.reusable:
            self.close()

    def close(self) -> None:
        self._closed = True
        self._stream.close()

    def is_closed(self) -> bool:
        return self._closed

    def has_expired(self) -> bool:
        """Whether the server has closed the idle connection, or sent what nobody asked for."""
        return bool(self._stream.get_extra_info("is_readable"))


class _Reader:
    """Reads one response; the methods that begin with `on_` are called by the parser."""

    def __init__(self, stream: httpcore.NetworkStream, limits: dict[str, Any]) -> None:
        """`limits`: the timeouts, in seconds; looked at before each read."""
        self._stream, self._limits = stream, limits
        self._parser: Any = httptools.HttpResponseParser(self)
        self._has_head = self._complete = False
        self._framed = False  # whether the head says where the body ends
        self._keeps = False  # whether the server keeps the connection
        self._extra = False  # whether bytes came behind the end
        self._pieces: list[bytes] = []  # of the body, parsed and not given out yet
        self._between = 0  # bytes since the last head or piece of a body
        self.status, self.version, self.reason = 0, "", b""
        self.headers: list[tuple[bytes, bytes]] = []

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another exchange."""
        return self._complete and self._keeps and not self._extra

    def read_head(self) -> None:
        while not self._has_head:
            data = self._read()
            if not data:
                raise httpcore.RemoteProtocolError("Server disconnected without sending a response.")
            self._feed(data)

    def body(self) -> Iterator[bytes]:
        while True:
            yield from self._pieces
            self._pieces.clear()
            if self._complete:
                return
            data = self._read()
            if data:
                self._feed(data)
            elif self._framed:
                raise httpcore.RemoteProtocolError("peer closed connection without sending complete message body")
            else:
                self._complete = True

    def end(self) -> None:
        """Parse no more. The parser holds this object: a cycle would be left to the garbage collector."""
        self._parser = None

    def _read(self) -> bytes:
        return self._stream.read(_READ, self._limits.get("read"))

    def _feed(self, data: bytes) -> None:
        self._between += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise httpcore.RemoteProtocolError("the server changes to another protocol") from None
        except httptools.HttpParserError as error:
            if not self._complete:
                raise httpcore.RemoteProtocolError(str(error)) from None
            self._extra = True
        finally:
            if self._complete:
                self.end()
        if self._between > MOST_OF_A_HEAD and not self._complete:
            raise httpcore.RemoteProtocolError("the head is too long") from HeadTooLong()

    def on_message_begin(self) -> None:
        if self._complete:
            self._extra = True

    def on_status(self, part: bytes) -> None:
        if not self._complete:
            self.reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # else it is a trailer
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        self._between = 0
        status = self._parser.get_status_code()
        if status in _INFORMATIONAL:
            self.headers, self.reason = [], b""
            return
        self.status, self.version, self._has_head = status, self._parser.get_http_version(), True
        names = {name.lower() for name, _ in self.headers}
        self._framed = status in _WITHOUT_BODY or not names.isdisjoint((b"content-length", b"transfer-encoding"))
        self._keeps = self._framed and self._parser.should_keep_alive()

    def on_body(self, part: bytes) -> None:
        if not self._complete:
            self._between = 0
            self._pieces.append(part)

    def on_message_complete(self) -> None:
        if self._has_head:
            self._complete = True


class _Content(httpx.SyncByteStream):
    """The body of a response. `over` is called when it is complete, or will not be read any further."""

    def __init__(self, parts: Iterator[bytes], over: Callable[[], None]) -> None:
        self._parts, self._over = parts, over

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self._over()


def _head(request: httpx.Request) -> bytes:
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%b: %b\r\n" % header for header in request.headers.raw]
    return b"".join([*lines, b"\r\n"])
