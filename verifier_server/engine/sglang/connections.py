"""Requests over HTTP that can be given up at any time.

A connection that is given up while it is made would stay open, until its memory is freed (anyio 4). So what is given up
is closed once the server has begun to reply.
"""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

_CONNECT = 5.0  # seconds that connecting may take
_IDLE = 2.0  # seconds after which a connection is not used again: the server closes it after 5
CLOSING = 1.0  # seconds that requests which were given up have to end when all is closed


class Unreachable(Exception):
    """The server does not answer; the message says how."""


class Connections:
    """To one server. Used in one event loop, but for its making."""

    def __init__(self, url: str, key: str | None) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            trust_env=not _is_loopback(httpx.URL(url).host),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE),
        )
        self._under_way: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def opened(
        self, method: str, path: str, body: Any = None, seconds: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """A response that has begun. Raises Unreachable, in the block, too.

        `seconds`: that each part of it may take; None: any time.
        """
        timeout = httpx.Timeout(seconds, connect=_CONNECT)
        request = self._http.build_request(method, path, json=body, timeout=timeout)
        opening = self._start(self._http.send(request, stream=True))
        try:
            try:
                response = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(self._give_up)
                raise
            try:
                yield response
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            raise Unreachable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error

    async def exchange(
        self, method: str, path: str, body: Any = None, seconds: float | None = None
    ) -> tuple[int, bytes]:
        """The status and the content of a response. Raises Unreachable."""
        async with self.opened(method, path, body, seconds) as response:
            return response.status_code, await response.aread()

    async def close(self) -> None:
        while self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=CLOSING)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._http.aclose()

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def _give_up(self, opening: asyncio.Task[httpx.Response]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._start(opening.result().aclose())


def _is_loopback(host: str) -> bool:
    """Whether no proxy of the environment leads to it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
