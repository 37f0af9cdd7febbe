"""The endpoints for tokens: `/tokenize`, `/detokenize`, `/apply-template`."""

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from gateway.openai_api.limits import check_ids, check_model, check_size
from gateway.openai_api.messages.parameters import read_request
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.prompts.prompts import Prompts
from gateway.openai_api.texts import TextSource
from gateway.openai_api.tokens.messages import (
    AppliedTemplate,
    Detokenized,
    DetokenizeRequest,
    TokenizeContent,
    TokenizePrompt,
    read_tokenize,
    text_of,
    tokenized,
)
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import PromptTooLong
from specpair.protocol.messages import TokenizeRequest, parse
from specpair.protocol.service_responses import TokenizeResponse

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
