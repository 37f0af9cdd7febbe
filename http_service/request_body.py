"""Reads a request's body, with limits on its size and on the time it takes."""

import asyncio

from starlette.requests import Request

from speculation.errors import BodyTooLarge, InvalidRequest, RequestTimeout

SLOWEST = 32 * 1024  # bytes per second, at least, of a body that takes longer than `patience`


async def read_body(request: Request, limit: int, patience: float, slowest: float = SLOWEST) -> bytes:
    """Read the body of a request.

    It may have up to `limit` bytes, and take up to `patience` seconds plus one for each `slowest` bytes read. Raises
    BodyTooLarge, RequestTimeout, and InvalidRequest if the connection was closed before the body was complete.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(f"the body has {declared} bytes, this server takes at most {limit}", limit=limit)
    body, more = bytearray(), True
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
                if more:
                    deadline.reschedule(began + patience + len(body) / slowest)
    except TimeoutError:
        raise RequestTimeout(
            f"the body was not complete after {loop.time() - began:.1f} s ({len(body)} bytes had come): send it in "
            f"{patience:g} s, or at {slowest / 1024:g} KiB a second"
        ) from None
    return bytes(body)
