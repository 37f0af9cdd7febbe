"""Turns texts and conversations into tokens, and tokens into texts, without generating any: `/tokenize`,
`/detokenize`, `/apply-template`, in the forms of this project, of llama-server and of vLLM."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import Field, RootModel
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from gateway.openai_api.messages.objects import read_request
from gateway.openai_api.messages.options import ModelName
from gateway.openai_api.messages.replies import Reply
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.prompts import Prompts, check_ids, check_model, check_size
from gateway.openai_api.texts import TextSource
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol import messages
from specpair.protocol.errors import InvalidRequest, PromptTooLong
from specpair.protocol.messages import RequestModel, TokenIds, TokenizeRequest, parse
from specpair.protocol.service_responses import TokenizeResponse

_STRINGS = "return_token_strs"
_AT_ONCE = 4096  # tokens that are written at once


class TokenizeContent(RequestModel):
    """llama-server's form."""

    content: str = Field(description="The text.")
    add_special: bool = Field(False, description="Whether to put the begin token first.")
    parse_special: bool = Field(True, description="Whether to parse control tokens in the text.")
    with_pieces: bool = Field(False, description="Whether each token comes with its text.")

    @property
    def ours(self) -> TokenizeRequest:
        """The request in our own form."""
        return TokenizeRequest(text=self.content, add_begin=self.add_special, parse_control=self.parse_special)


class TokenizePrompt(RequestModel):
    """vLLM's form. The prompt is read as by `/v1/completions`: control tokens in it are text."""

    prompt: str = Field(description="The text.")
    add_special_tokens: bool = Field(True, description="Whether to put the begin token first.")
    return_token_strs: bool | None = Field(False, description="Whether to tell the text of each token.")
    model: ModelName = None

    @property
    def ours(self) -> TokenizeRequest:
        """The request in our own form."""
        return TokenizeRequest(text=self.prompt, add_begin=self.add_special_tokens)


class TokenizeBody(RootModel[TokenizeRequest | TokenizeContent | TokenizePrompt | ChatRequest]):
    """A text, in one of three forms, or the body of a chat, of which only the prompt's fields count.

    A chat may have `return_token_strs`, too.
    """


class DetokenizeRequest(RequestModel):
    """Tokens whose text is wanted."""

    tokens: TokenIds = Field(description="Token ids, at most as many as the context holds.")
    model: ModelName = None


class TokenPiece(Reply):
    """A token with its text."""

    id: int = Field(description="The token id.")
    piece: str | list[int] = Field(description="Its text, or its bytes where they are no text by themselves.")


class Tokenized(Reply):
    """Tokens of a text, in llama-server's and vLLM's form."""

    tokens: list[int] | list[TokenPiece] = Field(description="Token ids; with `with_pieces`, with their text.")
    count: int = Field(description="How many tokens.")
    max_model_len: int = Field(description="Tokens of the context.")
    token_strs: list[str] | None = Field(None, description="The text of each token, if requested.")


class TokenizeReply(RootModel[TokenizeResponse | Tokenized]):
    """Tokens, in the form of the request."""


class Detokenized(Reply):
    """The text of tokens, by the names of both servers."""

    content: str = Field(description="The text, by llama-server's name.", examples=["def main("])
    prompt: str = Field(description="The same, by vLLM's name.", examples=["def main("])


class AppliedTemplate(Reply):
    """A conversation as text."""

    prompt: str = Field(description="What the chat template makes of it, up to where the answer begins.")


def read_tokenize(body: bytes) -> tuple[TokenizeRequest | TokenizeContent | TokenizePrompt | ChatRequest, bool]:
    """The request in the body of `/tokenize`, and whether the text of each token is wanted. Raises InvalidRequest."""
    given = _object(body)
    if "messages" in given:
        strings = given.get(_STRINGS)
        if not isinstance(strings, bool | None):
            raise InvalidRequest(f"{_STRINGS}: it must be true or false", param=_STRINGS)
        return read_request(ChatRequest, body), bool(strings)
    if "content" in given:
        return messages.parse(TokenizeContent, body), False
    if "prompt" in given:
        prompt = messages.parse(TokenizePrompt, body)
        return prompt, bool(prompt.return_token_strs)
    return messages.parse(TokenizeRequest, body), False


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; empty where it holds none, which its reader reports."""
    try:
        given = from_json(body)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def text_of(vocabulary: Vocabulary, ids: list[int]) -> str:
    """The text of tokens, with the names of control tokens. Invalid UTF-8 becomes U+FFFD."""
    pieces = (vocabulary.pieces[each] for each in ids if vocabulary.kinds[each] != Kind.UNUSED)
    return b"".join(pieces).decode(errors="replace")


def tokenized(ids: Sequence[int], vocabulary: Vocabulary, context: int, *, pieces: bool, strings: bool) -> bytes:
    """A `Tokenized` in JSON. It is written part by part: while pydantic or json writes, no other thread runs.

    `context`: tokens that it holds.
    `pieces`: whether each token comes with its text or its bytes.
    `strings`: whether the texts come beside the tokens.
    """
    tokens = _array(ids, partial(_piece, vocabulary) if pieces else int)
    texts = f',"token_strs":{_array(ids, lambda token: text_of(vocabulary, [token]))}' if strings else ""
    return f'{{"tokens":{tokens},"count":{len(ids)},"max_model_len":{context}{texts}}}'.encode()


def _array(ids: Sequence[int], told: Callable[[int], Any]) -> str:
    """A JSON array with an item for each token."""
    parts = (
        json.dumps([*map(told, ids[at : at + _AT_ONCE])], ensure_ascii=False, separators=(",", ":"))[1:-1]
        for at in range(0, len(ids), _AT_ONCE)
    )
    return f"[{','.join(parts)}]"


def _piece(vocabulary: Vocabulary, token: int) -> dict[str, Any]:
    piece = vocabulary.pieces[token]
    try:
        return {"id": token, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": [*piece]}


_CONTEXTS = 4  # a text may have so many times the tokens that the context holds


class TokenEndpoints:
    """The endpoints as methods, which raise SpecPairError."""

    def __init__(self, source: TextSource, prompts: Prompts) -> None:
        self._source, self._prompts = source, prompts

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text or of a conversation. A text may be longer than the context, within reason."""
        self._source.admit(request)
        message, strings = await self._source.read(request, read_tokenize)
        if isinstance(message, TokenizeRequest):
            return JsonReply(TokenizeResponse(token_ids=await self._source.tokenize(message)).body())
        target, pieces = self._source.target(), False
        if isinstance(message, TokenizeContent):
            check_size("content", len(message.content.encode()), target)
            ids, pieces = await self._source.tokenize(message.ours), message.with_pieces
        elif isinstance(message, TokenizePrompt):
            check_model(message.model, target)
            check_size("prompt", len(message.prompt.encode()), target)
            ids = await self._source.tokenize(message.ours)
        else:
            check_model(message.model, target)
            ids = await self._prompts.encoded(await self._prompts.rendered(message, target))
        if len(ids) > (most := _CONTEXTS * target.context_length):
            raise PromptTooLong(
                f"the text has {len(ids)} tokens, at most {most} are told, {_CONTEXTS} times what the context holds: "
                "send it in parts",
                prompt_len=len(ids),
                context_length=target.context_length,
            )
        # In a thread: a hundred thousand tokens take long.
        told = partial(tokenized, ids, target.vocabulary, target.context_length, pieces=pieces, strings=strings)
        return JsonReply(await asyncio.to_thread(told))

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids, with the names of control tokens."""
        self._source.admit(request)
        message = await self._source.read(request, partial(parse, DetokenizeRequest))
        target = self._source.target()
        check_model(message.model, target)
        count, most = len(message.tokens), target.context_length
        if count > most:
            raise PromptTooLong(
                f"tokens: {count} ids, at most {most} are taken, as many as the context holds: send them in parts",
                prompt_len=count,
                context_length=most,
                param="tokens",
            )
        check_ids("tokens", message.tokens, target)
        text = await asyncio.to_thread(text_of, target.vocabulary, message.tokens)
        return JsonReply(Detokenized(content=text, prompt=text).json_bytes())

    async def apply_template(self, request: Request) -> Response:
        """A conversation as text, by the target's chat template. The body is that of a chat.

        Only what makes the prompt counts. For its token ids, send the same to `/tokenize`: control tokens that messages
        spell out cannot be told apart in the text.
        """
        self._source.admit(request)
        message = await self._source.read(request, partial(read_request, ChatRequest))
        target = self._source.target()
        check_model(message.model, target)
        parts = await self._prompts.rendered(message, target)
        return JsonReply(AppliedTemplate(prompt="".join(part.text for part in parts)).json_bytes())
