"""A client of the REST interface of a running SGLang server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import httpx

from specpair.protocol.http_reply import is_loopback
from verifier_server.engine.sglang.replies import (
    TOP,
    Judged,
    Stream,
    StreamChunk,
    UnusableReply,
    judged,
    parsed,
    refused,
)

CLOSING = 1.0  # seconds that requests which were given up have to end when all is closed
_CONNECT, _SHORT, _HEALTH = 5.0, 10.0, 60.0  # seconds that connecting, a reply about the server, or its health may take
_IDLE = 2.0  # seconds after which a connection is not used again: the server closes it after 5


T = TypeVar("T")


class Unreachable(Exception):
    """The server does not answer; the message says how."""


class Refusal(Exception):
    """SGLang answers, but refuses the request. The message begins with the `setting` at fault."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting


class PassPrompt(NamedTuple):
    """The prompt of a pass. `ids`: the whole text so far. Texts with one `salt` share their prefixes."""

    ids: Sequence[int]
    salt: str
    name: str  # of the pass, by which it can be aborted; no other pass's name begins with it

    @classmethod
    def of(cls, ids: Sequence[int], salt: str) -> "PassPrompt":
        return cls(ids, salt, f"specpair-{uuid4().hex}")


class SglangApi:
    """The client. All but its creation runs in one event loop. Its methods raise Unreachable.

    Each exchange has a client of httpx for itself, and with it a connection. A pool that several share closes other
    connections with a reply, and one that is cancelled meanwhile would leave them open. What is given up is closed once
    the server has begun to reply: before, a connection that is being made would stay open (anyio 4).
    """

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url.rstrip("/")
        self._new = partial(
            httpx.AsyncClient,
            base_url=self.url,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            trust_env=not is_loopback(httpx.URL(url).host),  # no proxy of the environment leads to this machine
            limits=httpx.Limits(keepalive_expiry=_IDLE),
            verify=httpx.create_ssl_context(),
        )
        self._idle: list[httpx.AsyncClient] = []
        self._opening: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[Any]] = set()
        self.vocabulary_size = 0  # ids that replies may name

    async def healthy(self) -> bool:
        """Whether the server is ready; False while it loads its model. Raises Refusal."""
        status, _ = await self._exchange("GET", "/health", seconds=_HEALTH)
        if status < 500 and status != 200:
            raise Refusal("sglang_url", f"{self.url}/health answers HTTP {status}: is it another server?")
        return status == 200

    async def server(self) -> Mapping[str, Any]:
        """The server's arguments and version. Raises Refusal."""
        return await self._object("/server_info")

    async def model(self) -> Mapping[str, Any]:
        """The served model. Raises Refusal."""
        return await self._object("/model_info")

    async def judge(self, prompt: PassPrompt, start: int) -> Judged:
        """One pass over the draft that begins at `start` of the prompt. Raises SpecPairError and UnusableReply."""
        reply = parsed(await self._posted(self._asking(prompt, 1, ignore_eos=True) | _logprobs(start - 1)))
        return judged(reply, prompt.ids, start, self.vocabulary_size)

    async def decode(self, prompt: PassPrompt, most: int, ends: Sequence[int]) -> AsyncGenerator[StreamChunk, None]:
        """Decode up to `most` tokens, and stop after one of `ends`. Raises SpecPairError and UnusableReply."""
        until = {"stop_token_ids": list(ends)} if ends else {"ignore_eos": True}
        body = self._asking(prompt, most, **until) | {"stream": True}
        stream, done = Stream(len(prompt.ids), self.vocabulary_size), False
        async with self._opened("POST", "/generate", body) as response:
            if response.status_code != 200:
                raise refused(response.status_code, _parsed_or_none(await response.aread()))
            async for line in response.aiter_lines():
                if (piece := stream.piece(line)) is not None:
                    done = piece.done
                    yield piece
        if not done:
            raise Unreachable("the stream ended before the text")

    async def spelled(self, ids: Sequence[int]) -> list[str | None]:
        """SGLang's text of each of these tokens; None: it has no tokenizer. Raises as `judge` does."""
        asking = self._asking(PassPrompt.of(ids, "spelled"), 1, ignore_eos=True)
        reply = parsed(await self._posted(asking | _logprobs(0) | {"return_text_in_logprobs": True}))
        try:
            entries = reply["meta_info"]["input_token_logprobs"]
            return [entry[2] for entry in entries]
        except (KeyError, IndexError, TypeError):
            raise UnusableReply("input_token_logprobs has no texts of tokens") from None

    async def abort(self, name: str) -> None:
        """End a pass whose tokens are no longer wanted. Where SGLang wants an --admin-api-key for that, it finds the
        connection closed seconds later."""
        with suppress(Unreachable):  # a server that is gone runs no pass
            await self._exchange("POST", "/abort_request", {"rid": name}, _SHORT)

    async def close(self) -> None:
        if self._opening:
            _, late = await asyncio.wait(self._opening, timeout=CLOSING)
            for task in late:
                task.cancel()
        while under_way := self._opening | self._closing:
            await asyncio.wait(under_way)
        while self._idle:
            await self._idle.pop().aclose()

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, body: Any = None, seconds: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """A context with an open response. Raises Unreachable, also inside the block.

        `seconds`: that each part of it may take; None: any time.
        """
        client = self._idle.pop() if self._idle else self._new()
        timeout = httpx.Timeout(seconds, connect=_CONNECT)
        request = client.build_request(method, path, json=body, timeout=timeout)
        opening = _started(client.send(request, stream=True), self._opening)
        whole = False
        try:
            response = await asyncio.shield(opening)
            yield response
            whole = response.is_closed
        except httpx.RequestError as error:
            raise Unreachable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error
        finally:
            if whole:
                self._idle.append(client)
            else:
                _started(_given_up(client, opening), self._closing)

    async def _exchange(
        self, method: str, path: str, body: Any = None, seconds: float | None = None
    ) -> tuple[int, bytes]:
        """The status and the content of a response. Raises Unreachable."""
        async with self._opened(method, path, body, seconds) as response:
            return response.status_code, await response.aread()

    def _asking(self, prompt: PassPrompt, most: int, **sampling: Any) -> dict[str, Any]:
        """The body of a request at temperature 0 for `most` tokens."""
        params = {"temperature": 0.0, "max_new_tokens": most, "skip_special_tokens": False, "stream_interval": 1}
        return {
            "rid": prompt.name,
            "input_ids": list(prompt.ids),
            "cache_salt": prompt.salt,
            "sampling_params": params | sampling,
        }

    async def _posted(self, body: Mapping[str, Any]) -> bytes:
        status, content = await self._exchange("POST", "/generate", body)
        if status != 200:
            raise refused(status, _parsed_or_none(content))
        return content

    async def _object(self, path: str) -> Mapping[str, Any]:
        """The JSON object at a path."""
        status, content = await self._exchange("GET", path, seconds=_SHORT)
        if status >= 500:
            raise Unreachable(f"HTTP {status}")
        if status in (401, 403):
            raise Refusal("sglang_api_key", f"{self.url} refuses this key: give SGLang's --api-key")
        told = _parsed_or_none(content) if status == 200 else None
        if not isinstance(told, dict):
            raise Refusal("sglang_url", f"{self.url} does not answer {path} as SGLang does: is it another server?")
        return told


def _started(work: Coroutine[Any, Any, T], among: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    """A task, which is in a set until it is over."""
    task = asyncio.create_task(work)
    among.add(task)
    task.add_done_callback(among.discard)
    return task


async def _given_up(client: httpx.AsyncClient, opening: asyncio.Task[httpx.Response]) -> None:
    await asyncio.gather(opening, return_exceptions=True)
    await client.aclose()


def _logprobs(start: int) -> dict[str, Any]:
    """Options that ask for the log probabilities of the prompt's tokens from `start` on."""
    return {"return_logprob": True, "logprob_start_len": start, "top_logprobs_num": TOP}


def _parsed_or_none(content: bytes) -> Any:
    """The JSON of an error reply; None if the reply has none."""
    try:
        return parsed(content)
    except UnusableReply:
        return None
