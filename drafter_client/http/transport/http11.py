"""A connection for HTTP/1.1 whose responses httptools parses.

httpcore's own parses with h11, which is written in Python. With it, an exchange takes the drafter's processor half as
long again or twice as long, and a draft waits for that twice: when the answer before it is read, and when it is sent.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpcore
import httpx

from specpair.protocol.http_reply import ReplyError, ReplyHead, ReplyParser

_READ = 64 * 1024  # bytes, at most, of one read


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
            head = reader.read_head()
        except BaseException:
            reader.reply.end()
            self.close()
            raise
        return httpx.Response(
            head.status,
            headers=head.headers,
            stream=_Content(reader.body(), lambda: self._over(reader.reply)),
            extensions={
                "http_version": b"HTTP/" + reader.reply.version.encode(),
                "reason_phrase": reader.reply.reason,
                "network_stream": self._stream,
            },
        )

    def _over(self, reply: ReplyParser) -> None:
        reply.end()
        if not reply.reusable:
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
    """Reads one response."""

    def __init__(self, stream: httpcore.NetworkStream, limits: dict[str, Any]) -> None:
        """`limits`: the timeouts, in seconds; looked at before each read."""
        self._stream, self._limits, self.reply = stream, limits, ReplyParser()

    def read_head(self) -> ReplyHead:
        while self.reply.head is None:
            self._read()
        return self.reply.head

    def body(self) -> Iterator[bytes]:
        while True:
            if self.reply.held:
                yield self.reply.take()
            if self.reply.complete:
                return
            self._read()

    def _read(self) -> None:
        data = self._stream.read(_READ, self._limits.get("read"))
        try:
            if data:
                self.reply.feed(data)
            else:
                self.reply.end_of_input()
        except ReplyError as error:
            raise httpcore.RemoteProtocolError(str(error)) from error


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
