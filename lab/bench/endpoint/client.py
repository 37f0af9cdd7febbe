"""Requests to one endpoint over HTTP, with the times at which the chunks of a reply came."""

import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx

from drafter_client.http.addresses import proxy_for
from drafter_client.http.transport import CONNECT_TIMEOUT, IDLE_LIMIT
from lab.bench.endpoint.chunks import EventSplitter, Reply
from lab.bench.endpoint.side import Side
from lab.bench.records import RequestFailure

Json = dict[str, Any]
PATHS = {"completions": "/completions", "chat": "/chat/completions"}
_LONGEST = 300  # characters of an error's message that are kept


class Exchange(NamedTuple):
    """A request with its reply.

    `started`: by `clock`, when sending began. `chunks`, `ended`: seconds since then.
    """

    started: float
    chunks: tuple[float, ...]
    ended: float
    reply: Reply
    failure: RequestFailure | None
    headers: httpx.Headers


class EndpointClient:
    """Asks one side's endpoint, many requests at a time. Loopback is never reached through a proxy. Raises BadUrl.

    `timeout`: seconds that a reply may be silent.
    `transport`: of httpx, in place of connections of its own.
    """

    def __init__(
        self,
        side: Side,
        *,
        timeout: float,
        clock: Callable[[], float] = time.perf_counter,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._side, self._clock, self._timeout = side, clock, timeout
        self.chunks = 0  # with text, of all replies so far
        url = httpx.URL(side.url)
        self._http = httpx.AsyncClient(
            headers={"Accept-Encoding": "identity"}
            | ({"Authorization": f"Bearer {side.key}"} if side.key is not None else {}),
            verify=ssl.create_default_context() if url.scheme == "https" else False,
            timeout=httpx.Timeout(timeout, connect=CONNECT_TIMEOUT, pool=None),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=IDLE_LIMIT),
            proxy=None if transport is not None else proxy_for(url),
            trust_env=False,
            transport=transport,
        )

    async def ask(self, api: str, body: Json) -> Exchange:
        """Send a request and read its reply. `api`: a key of `PATHS`. What goes wrong is in the result."""
        reply, splitter, chunks = Reply(), EventSplitter(), list[float]()
        headers, failure = httpx.Headers(), None
        request = self._http.build_request("POST", self._side.url + PATHS[api], json=body)
        started = self._clock()
        try:
            response = await self._http.send(request, stream=True)
            try:
                headers = response.headers
                if response.status_code >= 400:
                    await response.aread()
                    failure = _refused(response)
                else:
                    async for data in response.aiter_raw():
                        came = self._clock() - started
                        for event in splitter.feed(data):
                            if reply.take(event):
                                chunks.append(round(came, 6))
                                self.chunks += 1
                    failure = _incomplete(reply)
            finally:
                await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, OSError) as error:
            failure = _failure("unreachable", f"no endpoint answers at {self._side.url}: {error}")
        except httpx.TimeoutException:
            failure = _failure("timeout", f"nothing came for {self._timeout:g} s")
        except httpx.TransportError as error:
            failure = _failure("cut", f"the connection broke: {error or type(error).__name__}")
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            failure = _failure("protocol", f"the reply is no stream of completions: {error!r}")
        ended = round(self._clock() - started, 6)
        return Exchange(started, tuple(chunks), ended, reply, failure, headers)

    async def get(self, path: str) -> httpx.Response:
        """The response to a GET below the base. Raises httpx.HTTPError."""
        return await self._http.get(self._side.url + path)

    async def tokenize(self, text: str, model: str) -> int | None:
        """How many tokens the endpoint reads in a text, by `/tokenize` as vLLM and ours have it; None: not so."""
        root = httpx.URL(self._side.url).copy_with(path="/tokenize")
        try:
            response = await self._http.post(root, json={"model": model, "prompt": text})
            count = response.json().get("count") if response.status_code == 200 else None
        except (httpx.HTTPError, ValueError, AttributeError):
            return None
        return count if type(count) is int and count > 0 else None

    async def close(self) -> None:
        await self._http.aclose()


def _failure(kind: Any, message: str, status: int | None = None) -> RequestFailure:
    return RequestFailure(kind=kind, message=message[:_LONGEST], status=status)


def _refused(response: httpx.Response) -> RequestFailure:
    """The failure of a status of 400 or more, with the message that the body has."""
    try:
        error = response.json()
        error = error.get("error", error)
        said = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        said = response.text.strip() or response.reason_phrase
    return _failure("status", str(said), response.status_code)


def _incomplete(reply: Reply) -> RequestFailure | None:
    """What is wrong with a reply whose stream is over; None: nothing."""
    if reply.error is not None:
        return _failure("error", reply.error)
    if not reply.is_whole and reply.finish is None:
        if not reply.parts and reply.usage is None:
            return _failure("protocol", "the reply has no server-sent events of completions")
        return _failure("cut", "the stream ended without a finish reason and without [DONE]")
    return None
