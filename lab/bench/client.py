"""Sends requests to one endpoint over HTTP, and records the chunks of replies with their arrival times."""

import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from drafter_client.http.addresses import proxy_for
from drafter_client.http.transport import CONNECT_TIMEOUT, IDLE_LIMIT
from lab.bench.records import RequestFailure, Side, Speculation
from lab.bench.sides import key_of

_DONE = "[DONE]"


class EventSplitter:
    """Splits a stream of bytes into the data of its server-sent events, however they are cut into pieces."""

    def __init__(self) -> None:
        self._rest, self._cut = b"", False  # `_cut`: a line end of two characters may have been cut
        self._lines: list[bytes] = []  # of data

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the data of each event that ends in `data`. Comments and events without data are left out."""
        cut, self._cut = self._cut, data.endswith(b"\r") if data else self._cut
        new = data.removeprefix(b"\n") if cut else data
        *lines, self._rest = re.split(rb"\r\n|\r|\n", self._rest + new)
        for line in lines:
            key, _, value = line.partition(b":")
            if key == b"data":
                self._lines.append(value)
            elif not line and self._lines:
                yield b"\n".join(self._lines).strip().decode("utf-8", "replace")
                self._lines.clear()


@dataclass
class Reply:
    """The content of a reply's chunks so far.

    `text`: contents, thoughts, and tool calls as they were written.
    `usage`, `finish`, `speculation`: None until they are told.
    `error`: what an error within the stream says.
    `is_whole`: whether the stream said that it is over.
    """

    parts: list[str] = field(default_factory=list)
    usage: Mapping[str, Any] | None = None
    finish: str | None = None
    speculation: Speculation | None = None
    error: str | None = None
    is_whole: bool = False

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def take(self, data: str) -> bool:
        """Take the data of an event. Returns whether the event had text. Raises ValueError if the data is no chunk."""
        if data == _DONE:
            self.is_whole = True
            return False
        chunk = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError("an event is no object of JSON")
        if chunk.get("error"):
            self.error = _message(chunk["error"])
            return False
        said = ""
        for choice in chunk.get("choices") or []:
            said += _said(choice)
            self.finish = choice.get("finish_reason") or self.finish
        if said:
            self.parts.append(said)
        self.usage = chunk.get("usage") or self.usage
        self.speculation = speculation_in(chunk) or self.speculation
        return bool(said)


def _said(choice: Mapping[str, Any]) -> str:
    """The text in a chunk's choice, of a completion or of a chat."""
    delta = choice.get("delta") or choice.get("message") or {}
    found = [choice.get("text"), delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content")]
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        found += [function.get("name"), function.get("arguments")]
    return "".join(each for each in found if isinstance(each, str))


def _message(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def speculation_in(chunk: Mapping[str, Any]) -> Speculation | None:
    """A chunk's report of draft tokens, in one of three shapes; None: there is none.

    vLLM's and ours, `metrics.speculative_decoding`; ours, `spec_decode`; llama-server's and ours, `timings`.
    """
    of_vllm = (chunk.get("metrics") or {}).get("speculative_decoding")
    for found, drafted, accepted, rounds in (
        (of_vllm, "num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps"),
        (chunk.get("spec_decode"), "num_draft_tokens", "num_accepted_tokens", "num_drafts"),
        (chunk.get("timings"), "draft_n", "draft_n_accepted", ""),
    ):
        if found and drafted in found:
            return Speculation(drafted=found[drafted], accepted=found[accepted], rounds=found.get(rounds))
    return None


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
    """Sends many requests at a time to one side's endpoint. Loopback bypasses proxies. Raises BadUrl, and
    BadSide where the variable of its key is not set.

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
        url, key = httpx.URL(side.url), key_of(side)
        self._http = httpx.AsyncClient(
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key is not None else {}),
            verify=ssl.create_default_context() if url.scheme == "https" else False,
            timeout=httpx.Timeout(timeout, connect=CONNECT_TIMEOUT, pool=None),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=IDLE_LIMIT),
            proxy=None if transport is not None else proxy_for(url),
            trust_env=False,
            transport=transport,
        )

    async def ask(self, api: str, body: Json) -> Exchange:
        """Send a request and read its reply. `api`: a key of `PATHS`. The result holds any failure."""
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
                    for event in splitter.feed(b"\n\n"):  # some servers end no last event
                        reply.take(event)
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

    async def close(self) -> None:
        await self._http.aclose()


def _failure(kind: Any, message: str, status: int | None = None) -> RequestFailure:
    return RequestFailure(kind=kind, message=message[:_LONGEST], status=status)


def _refused(response: httpx.Response) -> RequestFailure:
    """The failure for a status of 400 or more, with the message in the body."""
    try:
        error = response.json()
        said = _message(error.get("error", error))
    except (ValueError, AttributeError):
        said = response.text.strip() or response.reason_phrase
    return _failure("status", said, response.status_code)


def _incomplete(reply: Reply) -> RequestFailure | None:
    """The failure of a reply whose stream has ended; None: the reply is complete."""
    if reply.error is not None:
        return _failure("error", reply.error)
    if not reply.is_whole and reply.finish is None:
        if not reply.parts and reply.usage is None:
            return _failure("protocol", "the reply has no server-sent events of completions")
        return _failure("cut", "the stream ended without a finish reason and without [DONE]")
    return None
