"""Anthropic's endpoints: a message that answers, written as one or as the events of its stream, and how many tokens a
conversation has."""

import time
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from gateway.anthropic_api.conversation import asked_of
from gateway.anthropic_api.replies import (
    EVENTS,
    BlockGrowth,
    Content,
    ContentText,
    ContentThinking,
    ContentToolUse,
    MessageEnding,
    MessageReply,
    MessageUsage,
    StopReason,
    TokenCount,
    error_body,
)
from gateway.anthropic_api.requests import CountRequest, MessagesRequest
from gateway.openai_api.blocks import Block, BlockStep, BlockWriter
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.generation import TextGeneration, reply_to
from gateway.openai_api.limits import check_model
from gateway.openai_api.texts import TextSource
from gateway.openai_api.translated import renamed, translated
from specpair.http_service.replies.events import event_bytes
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import SpecPairError

_GROWTH = {"text": ("text_delta", "text"), "thoughts": ("thinking_delta", "thinking")}
_CALL_GROWTH = ("input_json_delta", "partial_json")


class MessageWriter(BlockWriter):
    """Writes the message of one request."""

    def __init__(self, generation: TextGeneration, most: int) -> None:
        """`most`: tokens that the answer may have."""
        super().__init__(generation)
        self._id, self._most = f"msg_{uuid.uuid4().hex}", most

    def begin(self) -> Iterable[bytes]:
        return [_event("message_start", message=self._message([], None))]

    def silent(self) -> Iterable[bytes]:
        return [_event("ping")]

    def events(self, step: BlockStep) -> Iterable[bytes]:
        return [_told(step)]

    def end(self) -> Iterable[bytes]:
        ending = MessageEnding(stop_reason=self._reason, stop_sequence=self.generation.stop_string)
        statistics: dict[str, Any] = self.generation.statistics()
        return [
            *map(_told, self.ended()),
            _event("message_delta", delta=ending, usage=self._usage(), **statistics),
            _event("message_stop"),
        ]

    def failed(self, error: SpecPairError) -> Iterable[bytes]:
        return [event_bytes(EVENTS["error"](**error_body(error)).json_bytes(), "error")]

    def whole(self) -> MessageReply:
        return self._message([_content(block, ended=True) for block in self.blocks], self._reason)

    @property
    def _reason(self) -> StopReason:
        if self.reason == "tool_calls":
            return "tool_use"
        if self.reason == "length":
            full = self.generation.usage().completion_tokens < self._most
            return "model_context_window_exceeded" if full else "max_tokens"
        return "end_turn" if self.generation.stop_string is None else "stop_sequence"

    def _message(self, content: list[Content], reason: StopReason | None) -> MessageReply:
        statistics: dict[str, Any] = {} if reason is None else self.generation.statistics()
        return MessageReply(
            id=self._id,
            type="message",
            role="assistant",
            model=self.generation.order.model,
            content=content,
            stop_reason=reason,
            stop_sequence=None if reason is None else self.generation.stop_string,
            usage=self._usage(begun=reason is None),
            **statistics,
        )

    def _usage(self, begun: bool = False) -> MessageUsage:
        """`begun`: the answer has just begun, so that nothing is known of it."""
        usage = self.generation.usage()
        cached = 0 if begun else usage.prompt_tokens_details.cached_tokens
        return MessageUsage(
            input_tokens=usage.prompt_tokens - cached,
            cache_read_input_tokens=cached,
            cache_creation_input_tokens=0,
            output_tokens=0 if begun else usage.completion_tokens,
        )


def _event(name: str, **fields: Any) -> bytes:
    return event_bytes(EVENTS[name](type=name, **fields).json_bytes(), name)


def _told(step: BlockStep) -> bytes:
    if step.what == "begin":
        return _event("content_block_start", index=step.at, content_block=_content(step.block, ended=False))
    if step.what == "end":
        return _event("content_block_stop", index=step.at)
    kind, field = _GROWTH.get(step.block.kind, _CALL_GROWTH)
    growth: dict[str, Any] = {"type": kind, field: step.text}
    return _event("content_block_delta", index=step.at, delta=BlockGrowth(**growth))


def _content(block: Block, *, ended: bool) -> Content:
    text = block.text if ended else ""
    if block.kind == "thoughts":
        return ContentThinking(type="thinking", thinking=text, signature="")
    if block.kind == "call":
        return ContentToolUse(type="tool_use", id=block.id, name=block.name, input=_input(text))
    return ContentText(type="text", text=text, citations=None)


def _input(text: str) -> dict[str, Any]:
    """The arguments in their JSON text: those that are there, if the text was cut, as the client reads a stream."""
    found = from_json(text or "{}", allow_partial=True)
    return found if isinstance(found, dict) else {}


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

        async def make() -> TextGeneration:
            chat = asked.for_template(self._source.target().chat_template)
            return await self._chats.answers(chat, caller, began, bool(message.stream), asked.opening)

        writer = partial(MessageWriter, most=message.max_tokens)
        return await reply_to(bool(message.stream), make, writer, asked.names)

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
