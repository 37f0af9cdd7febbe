"""A transport of httpx that the user gave, as one client of those that share it uses it."""

from collections.abc import Iterator

import httpx

from drafter_client.http.traffic import Traffic
from drafter_client.http.transport import shut_down


class SharedTransport(httpx.BaseTransport):
    """Counts the heads and bodies that pass through `transport`, which whoever made it closes.

    An abort takes effect with the next part of a body; where a response shows its socket, that part is not waited for.
    """

    proxy = None  # `transport` alone knows it

    def __init__(self, transport: httpx.BaseTransport, traffic: Traffic) -> None:
        self._transport, self.traffic = transport, traffic
        self.aborted = False
        self._response: httpx.Response | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        self.traffic.sent += len(request.method) + len(request.url.raw_path) + _size(request.headers) + len(body)
        self._response = response = self._transport.handle_request(request)
        self.traffic.count(_size(response.headers))
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _CountedBody(response.stream, self)
        return response

    def connect(self, url: httpx.URL) -> None:
        """Do nothing: `transport` connects when it has to."""

    def abort(self) -> None:
        self.aborted = True
        response = self._response
        if response is not None and "network_stream" in response.extensions and response.http_version != "HTTP/2":
            shut_down(response.extensions["network_stream"])


class _CountedBody(httpx.SyncByteStream):
    """The body of a response, counted and bounded."""

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


def _size(headers: httpx.Headers) -> int:
    """Bytes of a head, but for the method and the path of a request."""
    return len("HTTP/1.1 200 OK\r\n\r\n") + sum(len(name) + len(value) + 4 for name, value in headers.raw)
