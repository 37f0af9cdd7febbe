"""A client of the REST interface of a running SGLang server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
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

    A connection that is given up while it is made would stay open, until its memory is freed (anyio 4). So what is
    given up is closed once the server has begun to reply.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            trust_env=not is_loopback(httpx.URL(url).host),  # no proxy of the environment leads to this machine
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE),
        )
        self._under_way: set[asyncio.Task[Any]] = set()
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
        while self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=CLOSING)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._http.aclose()

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, body: Any = None, seconds: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """A context with an open response. Raises Unreachable, also inside the block.

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
            finally:  # in a task of its own: to close one connection may close others, and must not be interrupted
                await asyncio.shield(self._start(response.aclose()))
        except httpx.RequestError as error:
            raise Unreachable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error

    async def _exchange(
        self, method: str, path: str, body: Any = None, seconds: float | None = None
    ) -> tuple[int, bytes]:
        """The status and the content of a response. Raises Unreachable."""
        async with self._opened(method, path, body, seconds) as response:
            return response.status_code, await response.aread()

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def _give_up(self, opening: asyncio.Task[httpx.Response]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._start(opening.result().aclose())

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


def _logprobs(start: int) -> dict[str, Any]:
    """Options that ask for the log probabilities of the prompt's tokens from `start` on."""
    return {"return_logprob": True, "logprob_start_len": start, "top_logprobs_num": TOP}


def _parsed_or_none(content: bytes) -> Any:
    """The JSON of an error reply; None if the reply has none."""
    try:
        return parsed(content)
    except UnusableReply:
        return None
