"""Responses as the connection reads them from a stream's bytes, however these are cut into pieces."""

from collections.abc import Iterator
from typing import Any

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.http.transport import Http11Connection

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n"
WHOLE = HEAD + b"12345"
IN_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n12\r\n3\r\n345\r\n0\r\nX-Trailer: t\r\n\r\n"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\n12345"
INTERIM = b"HTTP/1.1 100 Continue\r\nX-Early: y\r\n\r\n"


class Stream(httpcore.NetworkStream):
    """The server's end: it sends `pieces`, then closes."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)
        self.sent = b""
        self.closed = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return next(self._pieces, b"")

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.sent += buffer

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, info: str) -> Any:
        return None


def _request() -> httpx.Request:
    return httpx.Request(
        "POST",
        "http://box:8000/verify?a=b",
        headers=[(b"Host", b"box"), (b"Content-Length", b"2")],
        stream=httpx.ByteStream(b"{}"),
        extensions={"timeout": {"read": 1.0, "write": 1.0}},
    )


def _cut(whole: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % len(whole) for place in places} | {len(whole)})
    return [piece for start, end in zip([0, *ends], ends, strict=False) if (piece := whole[start:end])]


@given(
    st.sampled_from([WHOLE, IN_CHUNKS, TO_THE_END]),
    st.integers(0, 2),
    st.lists(st.integers(0, 1000), max_size=8),
)
def test_a_response_is_the_same_however_it_is_cut(response: bytes, interim: int, places: list[int]) -> None:
    stream = Stream(_cut(INTERIM * interim + response, places))
    connection = Http11Connection(stream)
    found = connection.handle_request(_request())
    assert found.read() == b"12345"
    assert (found.status_code, found.reason_phrase, found.http_version) == (200, "OK", "HTTP/1.1")
    assert not {"X-Trailer", "X-Early"} & {*found.headers}
    assert connection.is_closed() == stream.closed == (response is TO_THE_END)


def test_a_request_is_written_as_it_is() -> None:
    stream = Stream([WHOLE])
    Http11Connection(stream).handle_request(_request()).read()
    assert stream.sent == b"POST /verify?a=b HTTP/1.1\r\nHost: box\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "response",
    [
        WHOLE + b"junk",
        WHOLE + WHOLE,
        HEAD.replace(b"X-A: b", b"Connection: close") + b"12345",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n12345",
    ],
    ids=["junk", "a second response", "close", "HTTP/1.0"],
)
def test_a_connection_that_cannot_go_on_is_closed(response: bytes) -> None:
    stream = Stream([response])
    connection = Http11Connection(stream)
    assert connection.handle_request(_request()).read() == b"12345"
    assert connection.is_closed()
    assert stream.closed


def test_a_response_that_is_not_read_to_its_end_closes_the_connection() -> None:
    connection = Http11Connection(Stream([HEAD, b"12", b"345"]))
    connection.handle_request(_request()).close()
    assert connection.is_closed()


def _broken() -> Iterator[tuple[str, bytes]]:
    yield "closed", b""
    yield "no HTTP", b"\x15\x03\x01\x00\x02\x02"
    yield "half a head", HEAD[:20]
    yield "half a body", HEAD + b"12"
    yield "another protocol", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
    yield "no chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"


@pytest.mark.parametrize("response", [pytest.param(each, id=name) for name, each in _broken()])
def test_what_is_no_whole_response_is_an_error(response: bytes) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        Http11Connection(Stream([response])).handle_request(_request()).read()


def test_a_refusal_is_read_where_the_request_cannot_be_sent() -> None:
    class Refusing(Stream):
        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            raise httpcore.WriteError

    assert Http11Connection(Refusing([WHOLE])).handle_request(_request()).read() == b"12345"
