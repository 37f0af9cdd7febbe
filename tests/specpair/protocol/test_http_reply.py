"""Replies of HTTP/1.1 as a parser reads them, however they are cut into pieces, and what is refused."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.protocol.http_reply import MOST_HEADERS, MOST_OF_A_HEAD, HeadTooLong, ReplyError, ReplyParser

OK = b"HTTP/1.1 200 OK\r\n"
SHORT = OK + b"Content-Length: 2\r\n\r\n{}"
CHUNKS = OK + b"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\n{\r\n1\r\n}\r\n0\r\nX-Trailer: 1\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n"
EVIL = OK + b"Content-Length: 4\r\n\r\nEVIL"
ENDLESS = b"x" * (3 * MOST_OF_A_HEAD)


def parsed(pieces: Iterable[bytes], *, closed: bool = False) -> ReplyParser:
    reply = ReplyParser()
    for piece in pieces:
        reply.feed(piece)
    if closed:
        reply.end_of_input()
    return reply


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % len(whole) for place in places} | {len(whole)})
    return [piece for start, end in zip([0, *ends], ends, strict=False) if (piece := whole[start:end])]


@given(
    st.sampled_from([SHORT, CHUNKS]),
    st.integers(0, 2),
    st.sampled_from([b"", b"{}", EVIL, INTERIM, b"\x00\xff", b"0\r\n\r\n"]),
    st.lists(st.integers(0, 1000), max_size=8),
)
def test_a_reply_is_the_same_however_it_is_cut_and_whatever_follows(
    whole: bytes, interim: int, behind: bytes, places: list[int]
) -> None:
    reply = parsed(cut(INTERIM * interim + whole + behind, places))
    assert reply.head is not None and reply.head.status == 200 and len(reply.head.headers) == 1
    assert (reply.take(), reply.complete, reply.reusable) == (b"{}", True, not behind)


@pytest.mark.parametrize(
    ("head", "behind", "body"),
    [
        (b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", b"abcde", b""),
        (b"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", b"abcde", b""),
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n", b"{}", b"{}"),
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n", b"{}" + EVIL, b"{}"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", b"{}", b"{}"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b"{}", b"{}"),
        (OK + b"\r\n", b"{}" + EVIL, b"{}" + EVIL),  # to the end of the connection
    ],
)
def test_a_connection_that_cannot_go_on_is_told(head: bytes, behind: bytes, body: bytes) -> None:
    reply = parsed([head + behind], closed=True)
    assert (reply.take(), reply.complete, reply.reusable) == (body, True, False)


REFUSED = {
    "garbage": b"\x00\xff\r\n\r\n",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "status 0": b"HTTP/1.1 000 X\r\n\r\n",
    "status 20": b"HTTP/1.1 20 X\r\n\r\n",
    "status 600": b"HTTP/1.1 600 X\r\nContent-Length: 2\r\n\r\n{}",
    "status 999": b"HTTP/1.1 999 X\r\nContent-Length: 2\r\n\r\n{}",
    "another protocol": b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "101 without an upgrade": b"HTTP/1.1 101 X\r\n\r\n" + SHORT,
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 50\r\n\r\n{}",
    "one length twice": OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": OK + b"Content-Length: 2, 2\r\n\r\n{}",
    "a negative length": OK + b"Content-Length: -2\r\n\r\n{}",
    "a huge length": OK + b"Content-Length: 99999999999999999999\r\n\r\n{}",
    "length, then chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + EVIL,
    "chunks, then length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "gzip": OK + b"Transfer-Encoding: gzip\r\n\r\nabcde",
    "gzip in chunks": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two codings": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks of HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "no chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a negative chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    "CR in a header": OK + b"X-A: a\rSet-Cookie: b=1\r\nContent-Length: 2\r\n\r\n{}",
    "NUL in a header": OK + b"X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
    "half a head": OK + b"Content-Le",
    "half a body": OK + b"Content-Length: 5\r\n\r\n{}",
    "half a chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    "nothing": b"",
}


@pytest.mark.parametrize("whole", [pytest.param(whole, id=name) for name, whole in REFUSED.items()])
def test_what_is_no_whole_reply_is_refused(whole: bytes) -> None:
    for pieces in ([whole], [whole[at : at + 1] for at in range(len(whole))]):
        with pytest.raises(ReplyError):
            parsed(pieces, closed=True)


@pytest.mark.parametrize(
    "whole",
    [
        OK + b"X: " + ENDLESS,
        OK + ENDLESS,
        OK + b"X: " + ENDLESS + b"\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"X: 1\r\n" * (MOST_HEADERS + 1) + b"\r\n",
        INTERIM * (len(ENDLESS) // len(INTERIM) + 1),
        OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + ENDLESS,
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + ENDLESS,
    ],
    ids=["value", "name", "a whole head", "headers", "interim", "chunk extension", "trailers"],
)
def test_a_head_has_bounds(whole: bytes) -> None:
    for size in (50_000, 1000):  # of what is read at a time
        with pytest.raises(HeadTooLong):
            parsed(whole[at : at + size] for at in range(0, len(whole), size))


def test_a_part_of_a_head_is_told() -> None:
    reply = ReplyParser()
    seen = []
    for piece in (b"\r\n", b"HTTP/1.1 ", b"100 Continue\r\n\r\n", OK, b"Content-Length: 2\r\n\r\n", b"{}"):
        reply.feed(piece)
        seen.append(reply.within_head)
    assert seen == [False, True, False, True, False, False]
