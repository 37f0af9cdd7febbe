"""Bodies that are compressed: read as they were, within the same limit, or refused."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from specpair.http_service.replies.json_replies import error_reply
from specpair.http_service.request_bodies import read_body
from specpair.protocol.errors import BodyTooLarge, InvalidRequest, UnsupportedEncoding

LIMIT = 4096


def _raw(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "GZIP": ("GZIP", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "gzip in two members": ("gzip", lambda body: gzip.compress(body[:3]) + gzip.compress(body[3:])),
    "deflate": ("deflate", zlib.compress),
    "deflate without a header": ("deflate", _raw),
    "identity": ("identity", bytes),
}


def _read(body: bytes, *encodings: str) -> bytes:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-encoding", each.encode()) for each in encodings]
    return asyncio.run(read_body(Request({"type": "http", "headers": headers}, receive), LIMIT, 5.0))


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_body_is_read_as_it_was(kind: str) -> None:
    encoding, pack = PACKED[kind]
    for body in (b'{"prompt": "x"}', b"x" * LIMIT):
        assert _read(pack(body), encoding) == body


@pytest.mark.parametrize("kind", PACKED)
def test_a_body_that_is_too_large_when_unpacked_is_refused(kind: str) -> None:
    encoding, pack = PACKED[kind]
    with pytest.raises(BodyTooLarge) as refused:
        _read(pack(b"x" * (LIMIT + 1)), encoding)
    assert refused.value.details["limit"] == LIMIT


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_takes_no_memory(encoding: str) -> None:
    packed = PACKED[encoding][1](bytes(3_000_000))
    assert len(packed) < LIMIT
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            _read(packed, encoding)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", gzip.compress(b"{}")[:-1], gzip.compress(b"{}") + b"x", gzip.compress(b"") * 200],
    ids=["nothing", "as it is", "cut", "more", "many members"],
)
def test_a_body_that_cannot_be_unpacked_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="it cannot be read as gzip"):
        _read(body, "gzip")


@given(st.binary(max_size=64), st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_are_unpacked_or_refused(body: bytes, encoding: str) -> None:
    with suppress(InvalidRequest):
        _read(body, encoding)


@pytest.mark.parametrize(
    "encodings", [("br",), ("zstd",), ("gzip, gzip",), ("gzip", "deflate"), ("\x00",), ("x" * 500,)]
)
def test_another_encoding_is_refused_with_those_that_are_read(encodings: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedEncoding, match="send gzip, deflate, or the body as it is") as refused:
        _read(b"{}", *encodings)
    reply = error_reply(refused.value)
    assert (reply.status_code, reply.headers["accept-encoding"]) == (415, "gzip, deflate")
    assert len(refused.value.message) < 500
