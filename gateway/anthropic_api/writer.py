"""Writes an answer as a message of Anthropic's, and as the events of its stream."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

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
    error_body,
)
from gateway.openai_api.generation import Choices
from gateway.openai_api.messages.replies import Reply
from gateway.openai_api.translated.blocks import Block, Blocks, BlockStep
from gateway.openai_api.translated.running import Event
from specpair.protocol.errors import SpecPairError

_GROWTH = {"text": ("text_delta", "text"), "thoughts": ("thinking_delta", "thinking")}
_CALL_GROWTH = ("input_json_delta", "partial_json")


class MessageWriter:
    """Writes the message of one request; see `Writer`."""

    def __init__(self, choices: Choices, id: str, most: int) -> None:
        """`choices`: the chat, whose only text is written.
        `most`: tokens that the answer may have.
        """
        self._choices, self._id, self._most = choices, id, most
        self._blocks = Blocks()

    def begin(self) -> Sequence[Event]:
        return [_event("message_start", message=self._message([], None))]

    def silent(self) -> Sequence[Event]:
        return [_event("ping")]

    def take(self, chunk: Reply) -> Sequence[Event]:
        return [_told(step) for step in self._blocks.take(chunk)]

    def end(self) -> Sequence[Event]:
        ending = MessageEnding(stop_reason=self._reason, stop_sequence=self._choices.stop_string)
        return [
            *map(_told, self._blocks.end()),
            _event("message_delta", delta=ending, usage=self._usage(), **self._blocks.statistics),
            _event("message_stop"),
        ]

    def failed(self, error: SpecPairError) -> Sequence[Event]:
        return [Event("error", EVENTS["error"](**error_body(error)))]

    def reply(self) -> MessageReply:
        return self._message([_content(block, ended=True) for block in self._blocks.all], self._reason)

    @property
    def _reason(self) -> StopReason:
        if self._blocks.reason == "tool_calls":
            return "tool_use"
        if self._blocks.reason == "length":
            usage = self._blocks.usage
            full = usage is not None and usage.completion_tokens < self._most
            return "model_context_window_exceeded" if full else "max_tokens"
        return "end_turn" if self._choices.stop_string is None else "stop_sequence"

    def _message(self, content: list[Content], reason: StopReason | None) -> MessageReply:
        return MessageReply(
            id=f"msg_{self._id}",
            type="message",
            role="assistant",
            model=self._choices.model,
            content=content,
            stop_reason=reason,
            stop_sequence=None if reason is None else self._choices.stop_string,
            usage=self._usage(),
            **self._blocks.statistics,
        )

    def _usage(self) -> MessageUsage:
        usage = self._blocks.usage
        cached = 0 if usage is None else usage.prompt_tokens_details.cached_tokens
        return MessageUsage(
            input_tokens=self._choices.prompt_tokens - cached,
            cache_read_input_tokens=cached,
            cache_creation_input_tokens=0,
            output_tokens=0 if usage is None else usage.completion_tokens,
        )


def _event(name: str, **fields: Any) -> Event:
    return Event(name, EVENTS[name](type=name, **fields))


def _told(step: BlockStep) -> Event:
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
