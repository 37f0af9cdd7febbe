"""Anthropic's Messages endpoints: each request is read as a chat, and answered in Anthropic's objects and events."""

import time
import uuid
from collections.abc import Iterable
from functools import partial
from math import inf
from typing import Any, NamedTuple

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from gateway.anthropic_api import replies, requests
from gateway.anthropic_api.replies import EVENTS, Content, StopReason
from gateway.anthropic_api.requests import MessagesRequest
from gateway.openai_api.blocks import Block, BlockStep, BlockWriter
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.generation import TextGeneration, reply_to
from gateway.openai_api.messages.conversation import joined
from gateway.openai_api.messages.options import limited
from gateway.openai_api.messages.requests import ChatRequest, answer_of, chat_of, given, in_terms_of, translated
from gateway.openai_api.messages.thinking import UsualEffort, thinking_of
from gateway.openai_api.prompts import check_model
from gateway.openai_api.texts import TextSource
from specpair.http_service.replies.events import event_bytes
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import SpecPairError

_NAMES = {
    "response_format": "output_config.format",
    "json_schema": "output_config.format.schema",
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
}
USUAL_EFFORT = "high"  # asks for nothing, so that a template need not know it
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
Json = dict[str, Any]


class MessagesChat(NamedTuple):
    """The chat of a request."""

    chat: ChatRequest
    names: dict[str, str]  # of its parameters in the request
    opening: str  # what the answer begins with, and goes on from


def asked_of(request: requests.Conversation) -> MessagesChat:
    """The chat of a request. Raises InvalidRequest, in the request's names."""
    system = joined(request.system, "\n\n")
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    origins = ["system"] if system else []
    last = request.messages[-1]
    opening = (last.text or "") if last.role == "assistant" else ""
    for at, message in enumerate(request.messages[:-1] if last.role == "assistant" else request.messages):
        made = _messages(message)
        messages += made
        origins += [f"messages.{at}"] * len(made)
    config, choice = request.output_config, request.tool_choice
    effort = None if config is None else config.effort
    body: Json = {
        "model": request.model,
        "messages": messages,
        "tools": [_tool(each) for each in request.tools or ()],
        "tool_choice": None if choice is None else _choice(choice),
        "parallel_tool_calls": None if choice is None else not choice.disable_parallel_tool_use,
    } | thinking_of(request)
    if config is not None and config.format is not None:
        body["response_format"] = {"type": "json_schema", "schema": config.format.schema_}
    if effort == USUAL_EFFORT:
        body["chat_template_kwargs"] = {"reasoning_effort": UsualEffort(effort)} | (request.chat_template_kwargs or {})
    elif effort is not None:
        body["reasoning_effort"] = effort
    if isinstance(request, MessagesRequest):
        body |= {"max_completion_tokens": request.max_tokens, "stop": request.stop_sequences}
        body |= given(request, requests.TEXT_FIELDS)
    # The longest beginning of a path counts, and what is none of these has the same name.
    names = _NAMES | {f"messages.{at}": name for at, name in enumerate(origins)}
    names |= {f"tools.{at}.function": f"tools.{at}" for at in range(len(request.tools or ()))}
    names |= {f"tools.{at}.function.parameters": f"tools.{at}.input_schema" for at in range(len(request.tools or ()))}
    if effort is not None:
        names |= {"reasoning_effort": "output_config.effort"}
    return MessagesChat(chat_of(body, names), names, opening)


def _tool(tool: requests.CustomTool) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function | {"strict": tool.strict}}


def _choice(choice: requests.CustomToolChoice) -> Any:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]


def _messages(message: requests.TurnMessage) -> list[Json]:
    """A message as messages of a chat: replies of tools, then the user's text."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    if message.role == "assistant":
        return _answers(message.content)
    made = [_result(block) for block in message.content if isinstance(block, requests.ToolResultBlock)]
    said = [block for block in message.content if isinstance(block, requests.SAID_BLOCKS)]
    return [*made, {"role": message.role, "content": joined(said, "\n")}] if said or not made else made


def _result(block: requests.ToolResultBlock | requests.HostedResultBlock) -> Json:
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": block.text}


def _answers(blocks: list[requests.MessageBlock]) -> list[Json]:
    """An answer as messages: it is cut where tools that a provider ran have answered."""
    made: list[Json] = []
    part: list[requests.MessageBlock] = []
    for block in blocks:
        if not isinstance(block, requests.HostedResultBlock):
            part.append(block)
            continue
        made += [*([_answer(part)] if part else []), _result(block)]
        part = []
    return [*made, _answer(part)] if part or not made else made


def _answer(blocks: list[requests.MessageBlock]) -> Json:
    text = "".join(block.text for block in blocks if isinstance(block, requests.SAID_BLOCKS))
    thoughts = "".join(block.thinking for block in blocks if isinstance(block, requests.ThinkingBlock))
    calls = [
        {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.input}}
        for block in blocks
        if isinstance(block, requests.ToolUseBlock)
    ]
    return answer_of(text, thoughts, calls)


_GROWTH = {"text": ("text_delta", "text"), "thoughts": ("thinking_delta", "thinking")}
_CALL_GROWTH = ("input_json_delta", "partial_json")


class MessageWriter(BlockWriter):
    """Writes the message of one request."""

    def __init__(self, generation: TextGeneration, most: float) -> None:
        """`most`: limit of the answer's tokens."""
        super().__init__(generation)
        self._id, self._most = f"msg_{uuid.uuid4().hex}", most

    def begin(self) -> Iterable[bytes]:
        return [_event("message_start", message=self._message([], None))]

    def silent(self) -> Iterable[bytes]:
        return [_event("ping")]

    def events(self, step: BlockStep) -> Iterable[bytes]:
        return [_step_event(step)]

    def end(self) -> Iterable[bytes]:
        ending = replies.MessageEnding(stop_reason=self._reason, stop_sequence=self.generation.stop_string)
        statistics: dict[str, Any] = self.generation.statistics()
        return [
            *map(_step_event, self.ended()),
            _event("message_delta", delta=ending, usage=self._usage(), **statistics),
            _event("message_stop"),
        ]

    def failed(self, error: SpecPairError) -> Iterable[bytes]:
        return [event_bytes(EVENTS["error"](**replies.error_body(error)).json_bytes(), "error")]

    def whole(self) -> replies.MessageReply:
        return self._message([_content(block, ended=True) for block in self.blocks], self._reason)

    @property
    def _reason(self) -> StopReason:
        if self.reason == "tool_calls":
            return "tool_use"
        if self.reason == "length":
            full = self.generation.usage().completion_tokens < self._most
            return "model_context_window_exceeded" if full else "max_tokens"
        return "end_turn" if self.generation.stop_string is None else "stop_sequence"

    def _message(self, content: list[Content], reason: StopReason | None) -> replies.MessageReply:
        statistics: dict[str, Any] = {} if reason is None else self.generation.statistics()
        return replies.MessageReply(
            id=self._id,
            type="message",
            role="assistant",
            model=self.generation.spec.model,
            content=content,
            stop_reason=reason,
            stop_sequence=None if reason is None else self.generation.stop_string,
            usage=self._usage(begun=reason is None),
            **statistics,
        )

    def _usage(self, begun: bool = False) -> replies.MessageUsage:
        """`begun`: the answer has just begun, so that its counts are unknown."""
        usage = self.generation.usage()
        cached = 0 if begun else usage.prompt_tokens_details.cached_tokens
        return replies.MessageUsage(
            input_tokens=usage.prompt_tokens - cached,
            cache_read_input_tokens=cached,
            cache_creation_input_tokens=0,
            output_tokens=0 if begun else usage.completion_tokens,
        )


def _event(name: str, **fields: Any) -> bytes:
    return event_bytes(EVENTS[name](type=name, **fields).json_bytes(), name)


def _step_event(step: BlockStep) -> bytes:
    if step.what == "begin":
        return _event("content_block_start", index=step.at, content_block=_content(step.block, ended=False))
    if step.what == "end":
        return _event("content_block_stop", index=step.at)
    kind, field = _GROWTH.get(step.block.kind, _CALL_GROWTH)
    growth: dict[str, Any] = {"type": kind, field: step.text}
    return _event("content_block_delta", index=step.at, delta=replies.BlockGrowth(**growth))


def _content(block: Block, *, ended: bool) -> Content:
    text = block.text if ended else ""
    if block.kind == "thoughts":
        return replies.ContentThinking(type="thinking", thinking=text, signature="")
    if block.kind == "call":
        return replies.ContentToolUse(type="tool_use", id=block.id, name=block.name, input=_input(text))
    return replies.ContentText(type="text", text=text)


def _input(text: str) -> dict[str, Any]:
    """Parse the JSON text of arguments. If the text was cut, return its whole part, as clients read a stream."""
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
            return await self._chats.answers(asked.chat, caller, began, bool(message.stream), asked.opening)

        writer = partial(MessageWriter, most=limited(message.max_tokens) or inf)
        return await reply_to(bool(message.stream), make, writer, asked.names)

    async def count_tokens(self, request: Request) -> Response:
        """How many tokens the prompt of a conversation has."""
        self._source.admit(request)
        asked = await self._source.read(request, lambda body: translated(requests.CountRequest, body, asked_of))
        target = self._source.target()
        check_model(asked.chat.model, target)
        with in_terms_of(asked.names):
            parts = await self._chats.prompts.rendered(asked.chat, target, asked.opening)
            ids = await self._chats.prompts.encoded(parts)
        return JsonReply(replies.TokenCount(input_tokens=len(ids)).json_bytes())
