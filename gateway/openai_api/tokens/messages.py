"""What the endpoints for tokens read and write: the forms of this project, of llama-server and of vLLM."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field, RootModel
from pydantic_core import from_json

from gateway.openai_api.messages.parameters import read_request
from gateway.openai_api.messages.replies import Reply
from gateway.openai_api.messages.requests import ChatRequest, ModelName
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.protocol import messages
from specpair.protocol.errors import InvalidRequest
from specpair.protocol.messages import RequestModel, TokenIds, TokenizeRequest
from specpair.protocol.service_responses import TokenizeResponse

_STRINGS = "return_token_strs"
_AT_ONCE = 4096  # tokens that are written at once


class TokenizeContent(RequestModel):
    """llama-server's form."""

    content: Annotated[str, Field(description="The text.")]
    add_special: Annotated[bool, Field(description="Whether to put the begin token first.")] = False
    parse_special: Annotated[bool, Field(description="Whether to parse control tokens in the text.")] = True
    with_pieces: Annotated[bool, Field(description="Whether each token comes with its text.")] = False

    @property
    def ours(self) -> TokenizeRequest:
        """The request in our own form."""
        return TokenizeRequest(text=self.content, add_begin=self.add_special, parse_control=self.parse_special)


class TokenizePrompt(RequestModel):
    """vLLM's form. The prompt is read as by `/v1/completions`: control tokens in it are text."""

    prompt: Annotated[str, Field(description="The text.")]
    add_special_tokens: Annotated[bool, Field(description="Whether to put the begin token first.")] = True
    return_token_strs: Annotated[bool | None, Field(description="Whether to tell the text of each token.")] = False
    model: ModelName = None

    @property
    def ours(self) -> TokenizeRequest:
        """The request in our own form."""
        return TokenizeRequest(text=self.prompt, add_begin=self.add_special_tokens)


class TokenizeBody(RootModel[TokenizeRequest | TokenizeContent | TokenizePrompt | ChatRequest]):
    """A text, in one of three forms, or the body of a chat, of which only what makes the prompt counts.

    A chat may have `return_token_strs`, too.
    """


class DetokenizeRequest(RequestModel):
    """Tokens whose text is wanted."""

    tokens: Annotated[TokenIds, Field(description="Token ids, at most as many as the context holds.")]
    model: ModelName = None


class TokenPiece(Reply):
    """A token with its text."""

    id: Annotated[int, Field(description="The token id.")]
    piece: Annotated[str | list[int], Field(description="Its text, or its bytes where they are no text by themselves.")]


class Tokenized(Reply):
    """Tokens of a text, as llama-server and vLLM tell them."""

    tokens: Annotated[
        list[int] | list[TokenPiece], Field(description="Token ids; with `with_pieces`, with their text.")
    ]
    count: Annotated[int, Field(description="How many tokens.")]
    max_model_len: Annotated[int, Field(description="Tokens of the context.")]
    token_strs: Annotated[list[str] | None, Field(description="The text of each token, if requested.")] = None


class TokenizeReply(RootModel[TokenizeResponse | Tokenized]):
    """Tokens, in the form of the request."""


class Detokenized(Reply):
    """The text of tokens, by the names of both servers."""

    content: Annotated[str, Field(description="The text, by llama-server's name.")]
    prompt: Annotated[str, Field(description="The same, by vLLM's name.")]


class AppliedTemplate(Reply):
    """A conversation as text."""

    prompt: Annotated[str, Field(description="What the chat template makes of it, up to where the answer begins.")]


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
    """The text of tokens, with the names of control tokens. What is no text becomes U+FFFD."""
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
    """An array of what is told of each token, in JSON."""
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
