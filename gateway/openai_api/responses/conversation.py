"""A request for a response as one for a chat."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.openai_api.messages.conversation import ChatMessage, joined
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.responses.requests import (
    TEXT_FIELDS,
    InputCall,
    InputCallOutput,
    InputMessage,
    InputReasoning,
    Item,
    NamedFunction,
    ResponseRequest,
    shown_name,
)
from gateway.openai_api.translated import chat_of, given

_NAMES = {
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
}
_SYSTEM = ("system", "developer")


class ResponseChat(NamedTuple):
    """A request, and the chat with its own messages alone. `names`: of the parameters that these come from."""

    request: ResponseRequest
    chat: ChatRequest
    names: list[str]


def asked_of(request: ResponseRequest) -> ResponseChat:
    """The chat of a request. Raises InvalidRequest, in the request's names."""
    messages, names = _messages(request.input)
    text = None if request.text is None else request.text.format
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": None if request.reasoning is None else request.reasoning.effort,
        "response_format": None if text is None else text.model_dump(include={"type", "schema_"}, by_alias=True),
        "logprobs": request.logprobs,
        "top_logprobs": request.top_logprobs,
        "tools": [{"type": "function", "function": _function(each)} for each in request.functions()],
        "parallel_tool_calls": request.parallel_tool_calls,
    }
    if isinstance(request.tool_choice, str):
        body["tool_choice"] = request.tool_choice
    elif request.tool_choice is not None:
        body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice.name}}
    return ResponseChat(request, chat_of(given(request, TEXT_FIELDS) | body, names_of(request, names)), names)


def conversation(asked: ResponseChat, previous: Sequence[ChatMessage]) -> tuple[ChatRequest, dict[str, str]]:
    """The chat with all messages: instructions, those of the previous response, its own. And the names of its
    parameters in the request.

    Instructions, and system messages that follow at once, are one: templates have a place for one.
    """
    messages = [*previous, *asked.chat.messages]
    names = ["previous_response_id"] * len(previous) + asked.names
    leading = next((at for at, each in enumerate(messages) if each.role not in _SYSTEM), len(messages))
    system = [each.text for each in messages[:leading]]
    if asked.request.instructions:
        system = [asked.request.instructions, *system]
    if len(system) > leading or len(system) > 1:
        messages[:leading] = [ChatMessage(role="system", content="\n\n".join(system))]
        names[:leading] = ["instructions" if asked.request.instructions else names[0]]
    return asked.chat.model_copy(update={"messages": messages}), names_of(asked.request, names)


def names_of(request: ResponseRequest, messages: Sequence[str]) -> dict[str, str]:
    """The names of a chat's parameters in the request. `messages`: where each message comes from."""
    schema = {} if request.text is None else {"json_schema": "text.format.schema"}
    tools = {f"tools.{at}.function": each.path for at, each in enumerate(request.functions())}
    return _NAMES | schema | tools | {f"messages.{at}": name for at, name in enumerate(messages)}


def _function(named: NamedFunction) -> dict[str, Any]:
    fields = named.tool.model_dump(exclude={"type"}) | {"name": named.name, "description": named.description}
    return {name: value for name, value in fields.items() if value is not None}


def _messages(given: str | list[Item]) -> tuple[list[dict[str, Any]], list[str]]:
    """The messages of an input. Thoughts, text and calls that follow each other are one of the assistant."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}], ["input"]
    messages: list[dict[str, Any]] = []
    names: list[str] = []
    tools: dict[str, str] = {}  # by the ids of their calls
    open_answer: dict[str, Any] | None = None  # of the assistant, which may go on
    for at, item in enumerate(given):
        if isinstance(item, InputMessage) and item.role != "assistant":
            message = {"role": item.role, "content": _content(item)}
        elif isinstance(item, InputCallOutput):
            message = {"role": "tool", "tool_call_id": item.call_id, "content": joined(item.output)}
            if item.call_id in tools:
                message["name"] = tools[item.call_id]
        else:
            if open_answer is None or not _goes_on(open_answer, item):
                open_answer = {"role": "assistant", "content": None}
                messages.append(open_answer)
                names.append(f"input.{at}")
            _add(open_answer, item)
            if isinstance(item, InputCall):
                tools[item.call_id] = shown_name(item.name, item.namespace)
            continue
        open_answer = None
        messages.append(message)
        names.append(f"input.{at}")
    return messages, names


def _content(item: InputMessage) -> Any:
    if isinstance(item.content, str):
        return item.content
    return [{"type": "text", "text": part.text} for part in item.content]


def _goes_on(answer: dict[str, Any], item: Item) -> bool:
    """Whether an item belongs to the answer that has begun: first thoughts, then text, then calls."""
    if isinstance(item, InputReasoning):
        return False
    return isinstance(item, InputCall) or (answer["content"] is None and "tool_calls" not in answer)


def _add(answer: dict[str, Any], item: Item) -> None:
    if isinstance(item, InputReasoning):
        thoughts = "".join(part.text for part in item.content or item.summary or ())
        if thoughts:
            answer["reasoning_content"] = thoughts
    elif isinstance(item, InputCall):
        function = {"name": shown_name(item.name, item.namespace), "arguments": item.arguments}
        answer.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})
    elif isinstance(item, InputMessage):
        answer["content"] = joined(item.content)
