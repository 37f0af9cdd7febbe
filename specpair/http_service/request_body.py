"""Reads a request's body, with limits on its size, also when unpacked, and on the time it takes."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable

from starlette.requests import Request

from specpair.protocol.errors import BodyTooLarge, InvalidRequest, RequestTimeout, UnsupportedEncoding
from specpair.protocol.terminal_text import one_line

_WINDOW_BITS = {
    "gzip": (31,),
    "x-gzip": (31,),
    "deflate": (15, -15),
}  # zlib's; deflate is sent with or without a header
LONG = 64 * 1024  # bytes of a body that costs others noticeable time and memory
SLOWEST = 32 * 1024  # bytes per second, at least, of a body that takes longer than `patience`
_MOST_MEMBERS = 8  # of gzip, one after the other: each costs a copy of what follows


async def read_body(
    request: Request,
    limit: int,
    patience: float,
    before_long: Callable[[int], Awaitable[None]] | None = None,
) -> bytes:
    """Read the body of a request, and unpack it if it is compressed.

    It may have up to `limit` bytes, sent and unpacked. `before_long` is called with the size that a body may have,
    before more than `LONG` bytes of it are read or unpacked. Raises what it raises, what `received_body` and `unpacked`
    raise, and UnsupportedEncoding.
    """
    encoding = encoding_of(request)
    called = False

    async def before(size: int) -> None:
        nonlocal called
        if before_long is not None and not called:
            called = True
            await before_long(size)

    body = await received_body(
        request, limit, patience, lambda declared: before(limit if encoding or not declared else declared)
    )
    if not encoding:
        return body
    await before(limit)
    return await asyncio.to_thread(unpacked, body, encoding, limit)


def encoding_of(request: Request) -> str:
    """How the body of a request is compressed; empty: it is not. Raises UnsupportedEncoding."""
    encoding = ", ".join(request.headers.getlist("content-encoding")).strip().lower()
    if encoding not in ("", "identity", *_WINDOW_BITS):
        raise UnsupportedEncoding(
            f"Content-Encoding: {one_line(encoding[:80])!r} is not read here: send gzip, deflate, or the body as it is"
        )
    return encoding if encoding in _WINDOW_BITS else ""


async def received_body(
    request: Request, limit: int, patience: float, before_long: Callable[[int], Awaitable[None]] | None = None
) -> bytes:
    """The body of a request as it was sent, of up to `limit` bytes.

    It may take up to `patience` seconds plus one for each `SLOWEST` bytes. `before_long` is called with the length that
    the request declares (0: none), before more than `LONG` bytes are read. Raises what it raises, BodyTooLarge,
    RequestTimeout, and InvalidRequest if the connection was closed before the body was complete.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(f"the body has {declared} bytes, this server takes at most {limit}", limit=limit)
    body, more, waited = bytearray(), True, 0.0
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(patience) as deadline:
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":  # a client's fault, so not logged
                    raise InvalidRequest("the connection was closed before the body was complete")
                body += message.get("body", b"")
                if len(body) > limit:
                    raise BodyTooLarge(f"the body is larger than the {limit} bytes this server takes", limit=limit)
                more = message.get("more_body", False)
                if before_long is not None and len(body) > LONG:
                    deadline.reschedule(None)
                    wait_began = loop.time()
                    await before_long(int(declared) if declared.isdigit() else 0)
                    before_long, waited = None, loop.time() - wait_began
                if more:
                    deadline.reschedule(began + waited + patience + len(body) / SLOWEST)
    except TimeoutError:
        raise RequestTimeout(
            f"the body was not complete after {loop.time() - began:.1f} s ({len(body)} bytes had come): send it in "
            f"{patience:g} s, or at {SLOWEST / 1024:g} KiB a second"
        ) from None
    return bytes(body)


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """A compressed body as it was, without ever holding more than `limit` bytes of it.

    Raises BodyTooLarge, and InvalidRequest for a body that is broken or not complete.
    """
    for bits in _WINDOW_BITS[encoding]:
        try:
            return _unpacked(body, bits, limit)
        except (zlib.error, EOFError):
            continue
    raise InvalidRequest(f"the body is not what Content-Encoding says: it cannot be read as {encoding}")


def _unpacked(body: bytes, bits: int, limit: int) -> bytes:
    found = bytearray()
    for _ in range(_MOST_MEMBERS):
        unpacker = zlib.decompressobj(bits)
        found += unpacker.decompress(body, limit + 1 - len(found))
        if len(found) > limit:
            raise BodyTooLarge(f"the body, unpacked, is larger than the {limit} bytes this server takes", limit=limit)
        if not unpacker.eof:
            raise EOFError
        body = unpacker.unused_data
        if not body:
            return bytes(found)
    raise EOFError
