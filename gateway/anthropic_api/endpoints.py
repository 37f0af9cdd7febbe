"""Anthropic's endpoints: a message that answers, and how many tokens a conversation has."""

import time
import uuid

from starlette.requests import Request
from starlette.responses import Response

from gateway.anthropic_api.conversation import asked_of
from gateway.anthropic_api.objects import TokenCount
from gateway.anthropic_api.requests import CountRequest, MessagesRequest
from gateway.anthropic_api.writer import MessageWriter
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.generation import Choices
from gateway.openai_api.limits import check_model
from gateway.openai_api.texts import TextSource
from gateway.openai_api.translated.names import renamed, translated
from gateway.openai_api.translated.running import answer
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import SpecPairError


class MessageEndpoints:
    """The endpoints as methods, which raise SpecPairError."""

    def __init__(self, source: TextSource, chats: Endpoints) -> None:
        self._source, self._chats = source, chats

    async def create_message(self, request: Request) -> Response:
        """Answer a conversation: JSON, or server-sent events with `stream`."""
        began, caller = time.monotonic(), self._source.admit(request)
        self._chats.places.check()
        message, asked = await self._source.read(
            request, lambda body: translated(MessagesRequest, body, lambda message: (message, asked_of(message)))
        )

        async def make() -> Choices:
            chat = asked.for_template(self._source.target().chat_template)
            return await self._chats.answers(chat, caller, began, bool(message.stream), asked.opening)

        def writer(choices: Choices) -> MessageWriter:
            return MessageWriter(choices, uuid.uuid4().hex, message.max_tokens)

        return await answer(bool(message.stream), make, writer, asked.names)

    async def count_tokens(self, request: Request) -> Response:
        """How many tokens the prompt of a conversation has."""
        self._source.admit(request)
        asked = await self._source.read(request, lambda body: translated(CountRequest, body, asked_of))
        target = self._source.target()
        check_model(asked.chat.model, target)
        try:
            chat = asked.for_template(target.chat_template)
            ids = await self._chats.prompts.encoded(await self._chats.prompts.rendered(chat, target, asked.opening))
        except SpecPairError as error:
            raise renamed(error, asked.names) from None
        return JsonReply(TokenCount(input_tokens=len(ids)).json_bytes())
