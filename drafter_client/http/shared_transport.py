"""A transport of httpx that the user gave, as one client of those that share it uses it."""

from collections.abc import Iterator

import httpx

from drafter_client.http.traffic import Traffic
from drafter_client.http.transport import shut_down


class SharedTransport(httpx.BaseTransport):
    """Counts the heads and bodies that pass through `transport`, which whoever made it closes.

    `abort` takes effect with the next part of a body, which it does not wait for where the transport shows its socket.
    """

    proxy = None  # known to the transport alone

    def __init__(self, transport: httpx.BaseTransport, traffic: Traffic) -> None:
        self._transport, self.traffic = transport, traffic
        self.aborted = False
        self._response: httpx.Response | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.traffic.sent += len(request.method) + len(request.url.raw_path) + _size(request.headers)
        self.traffic.sent += len(request.read())
        self._response = response = self._transport.handle_request(request)
        self.traffic.count(_size(response.headers))
        if response.is_closed:  # it was made with its content
            self.traffic.count(len(response.content))
        else:
            assert isinstance(response.stream, httpx.SyncByteStream)
            response.stream = _CountedBody(response.stream, self)
        return response

    def connect(self) -> None:
        """Do nothing: the transport connects when it has to."""

    def abort(self) -> None:
        self.aborted = True
        stream = None if self._response is None else self._response.extensions.get("network_stream")
        if stream is not None and self._response is not None and self._response.http_version != "HTTP/2":
            shut_down(stream)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None


def _size(headers: httpx.Headers) -> int:
    """Bytes of a head, but for the method and the path of a request."""
    return len("HTTP/1.1 200 OK\r\n\r\n") + sum(len(name) + len(value) + 4 for name, value in headers.raw)


class _CountedBody(httpx.SyncByteStream):
    """The body of a response, counted; its end after an abort is an error."""

    def __init__(self, body: httpx.SyncByteStream, transport: SharedTransport) -> None:
        self._body, self._transport = body, transport

    def __iter__(self) -> Iterator[bytes]:
        for part in self._body:
            self._transport.traffic.count(len(part))
            if self._transport.aborted:
                raise httpx.ReadError("aborted")
            yield part

    def close(self) -> None:
        self._body.close()
