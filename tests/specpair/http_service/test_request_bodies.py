"""Bodies of requests: compressed ones are read as they were or refused, and long ones take turns."""

import asyncio
import gzip
import json
import threading
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from specpair.http_service.replies.json_replies import error_reply
from specpair.http_service.request_bodies import LONG, MOST_VALUES, ByteBudget, RequestBodies, read_body, values
from specpair.protocol.errors import BodyTooLarge, InvalidRequest, Overloaded, UnsupportedEncoding

SMALL = 4096


def _raw(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "GZIP": ("GZIP", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate without a header": ("deflate", _raw),
    "identity": ("identity", bytes),
}


def _read(body: bytes, *encodings: str) -> bytes:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-encoding", each.encode()) for each in encodings]
    return asyncio.run(read_body(Request({"type": "http", "headers": headers}, receive), SMALL, 5.0))


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_body_is_read_as_it_was(kind: str) -> None:
    encoding, pack = PACKED[kind]
    for body in (b'{"prompt": "x"}', b"x" * SMALL):
        assert _read(pack(body), encoding) == body


@pytest.mark.parametrize("kind", PACKED)
def test_a_body_that_is_too_large_when_unpacked_is_refused(kind: str) -> None:
    encoding, pack = PACKED[kind]
    with pytest.raises(BodyTooLarge) as refused:
        _read(pack(b"x" * (SMALL + 1)), encoding)
    assert refused.value.details["limit"] == SMALL


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_takes_no_memory(encoding: str) -> None:
    packed = PACKED[encoding][1](bytes(3_000_000))
    assert len(packed) < SMALL
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            _read(packed, encoding)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", gzip.compress(b"{}")[:-1], gzip.compress(b"{}") + b"x", gzip.compress(b"{}") * 2],
    ids=["nothing", "as it is", "cut", "more", "two members"],
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


LIMIT = 1024 * 1024


def request(
    *parts: bytes,
    declared: int | None = None,
    encoding: bytes = b"identity",
    more: Callable[[], Awaitable[object]] | None = None,
) -> Request:
    """A request whose body comes in `parts`. `more` is awaited before each further one."""
    left = list(parts)

    async def receive() -> Any:
        if more is not None and len(left) < len(parts):
            await more()
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    headers = [(b"content-encoding", encoding)]
    if declared is not None:
        headers.append((b"content-length", b"%d" % declared))
    return Request({"type": "http", "headers": headers}, receive)


def bodies(**given: Any) -> RequestBodies:
    return RequestBodies(LIMIT, 10.0, lambda: 1024, **given)


def test_short_bodies_are_read_in_the_event_loop_and_long_ones_beside_it() -> None:
    async def read(size: int) -> tuple[int, int]:
        return await bodies().read(request(b"x" * size), lambda body: (len(body), threading.get_ident()))

    assert asyncio.run(read(LONG)) == (LONG, threading.get_ident())
    size, thread = asyncio.run(read(LONG + 1))
    assert size == LONG + 1 and thread != threading.get_ident()


def test_too_many_values_are_refused_unread() -> None:
    async def read(body: bytes) -> int:
        return await bodies().read(request(body), len)

    most = MOST_VALUES + 2 * 1024
    assert asyncio.run(read(b'["' + b"," * 500_000 + b'"' + b",1000" * most + b"]")) == 500_004 + 5 * most, (
        "in a string"
    )
    with pytest.raises(InvalidRequest, match=f"has more than {most + 1} values, at most {most} are read"):
        asyncio.run(read(b"[1" + b",1000" * (most + 1) + b"]"))


@given(st.recursive(st.text(st.sampled_from('a",\\\n')), lambda inner: st.lists(inner, min_size=1, max_size=5)))
def test_values_are_counted_outside_of_strings(value: Any) -> None:
    def commas(of: Any) -> int:
        return len(of) - 1 + sum(map(commas, of)) if isinstance(of, list) else 0

    assert values(json.dumps(value).encode()) == commas(value)


def test_a_long_body_waits_unread_until_there_is_room() -> None:
    """The first two of these take all the room, which is 16 MiB: the third is read when one of them is over."""

    async def run() -> None:
        reader = RequestBodies(8 * LIMIT, 10.0, lambda: 0)
        hold = asyncio.Event()
        half = b"x" * (LONG + 1)
        first = [
            asyncio.ensure_future(reader.read(request(half, b"y", declared=8 * LIMIT, more=hold.wait), len))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        third = asyncio.ensure_future(reader.read(request(half, b"y"), len))
        assert await reader.read(request(b"short"), len) == 5
        done, _ = await asyncio.wait([third], timeout=0.02)
        assert not done
        hold.set()
        assert await asyncio.gather(*first, third) == [LONG + 2] * 3

        both, held = asyncio.Event(), []

        async def together() -> None:
            held.append(True)
            if len(held) == 2:
                both.set()
            await both.wait()

        again = [reader.read(request(half, b"y", declared=8 * LIMIT, more=together), len) for _ in range(2)]
        assert await asyncio.wait_for(asyncio.gather(*again), 20) == [LONG + 2] * 2, "all the room is free again"

    asyncio.run(run())


def test_a_compressed_body_counts_as_what_it_may_be() -> None:
    async def run() -> None:
        reader = RequestBodies(32 * LIMIT, 10.0, lambda: 0, wait=0.01)
        hold = asyncio.Event()
        other = asyncio.ensure_future(reader.read(request(b"x" * (LONG + 1), b"y", more=hold.wait), len))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await reader.read(request(gzip.compress(b"x" * LIMIT), encoding=b"gzip"), len)
        hold.set()
        await other
        assert await reader.read(request(gzip.compress(b"x" * LIMIT), encoding=b"gzip"), len) == LIMIT

    asyncio.run(run())


def test_a_long_body_that_finds_no_room_in_time_is_refused() -> None:
    async def run() -> None:
        reader = RequestBodies(32 * LIMIT, 10.0, lambda: 0, wait=0.01)
        hold = asyncio.Event()
        parts = (b"x" * (LONG + 1), b"y")
        first = asyncio.ensure_future(reader.read(request(*parts, more=hold.wait), len))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match=r"waited 0\.01 s"):
            await reader.read(request(*parts), len)
        first.cancel()  # as when its client hangs up
        await asyncio.wait([first])
        assert await reader.read(request(*parts), len) == LONG + 2

    asyncio.run(run())


def test_room_is_given_in_order() -> None:
    async def run() -> None:
        room, order = ByteBudget(10), []

        async def take(name: str, size: int) -> None:
            await room.take(size)
            order.append(name)

        await room.take(8)
        tasks = [asyncio.ensure_future(take(name, size)) for name, size in (("a", 9), ("b", 1), ("c", 1))]
        await asyncio.sleep(0)
        assert order == [], "the small ones do not overtake"
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert order == ["b", "c"] and not room.empty
        room.give(10)
        assert room.empty

    asyncio.run(run())
