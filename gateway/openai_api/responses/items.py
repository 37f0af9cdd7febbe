"""The items of an input of Responses as messages of a chat."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter

from gateway.openai_api.messages.conversation import joined
from gateway.openai_api.messages.objects import shown
from gateway.openai_api.responses.replies import OutputItem
from gateway.openai_api.responses.requests import (
    HostedItem,
    InputCall,
    InputCallOutput,
    InputCustomCall,
    InputMessage,
    InputReasoning,
    Item,
    ItemReference,
)
from specpair.http_service.hints import take_hint
from specpair.protocol.errors import UnknownResponse

Json = dict[str, Any]
Find = Callable[[str], OutputItem | None]  # an item of a kept response, by its id
_ITEM: TypeAdapter[Item] = TypeAdapter(Item)


def messages_of(given: str | Sequence[Item], find: Find) -> tuple[list[Json], list[str]]:
    """The messages of an input, and the names of their parameters. Raises UnknownResponse for a lost reference."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}], ["input"]
    messages: list[Json] = []
    names: list[str] = []
    for at, item in enumerate(given):
        if isinstance(item, ItemReference):
            item = _referred(item.id, find, f"input.{at}.id")
        _add(messages, item)
        if isinstance(item, HostedItem) and item.function is None and item.answer is None:
            take_hint(f"input.{at}.{item.type}", "it holds nothing that the model could see: leave it out")
        names += [f"input.{at}"] * (len(messages) - len(names))
    return messages, names


def _referred(id: str, find: Find, name: str) -> Item:
    """The item of a kept response that the parameter `name` refers to."""
    if (item := find(id)) is None:
        raise UnknownResponse(
            f"{name}: there is no item {shown(id)!r}: items are kept with their response. Send the item itself, as "
            "clients do where store is false",
            param=name,
        )
    return _ITEM.validate_python(item.model_dump(exclude_unset=True))


def _add(messages: list[Json], item: Item) -> None:
    """Add an item. Thoughts, text and calls that follow each other are one message of the assistant."""
    last: Json = messages[-1] if messages and messages[-1]["role"] == "assistant" else {}
    match item:
        case InputMessage(role="assistant"):
            if last.get("content", "") is not None or "tool_calls" in last:
                messages.append(last := {"role": "assistant"})
            last["content"] = joined(item.content)
        case InputMessage():
            parts = item.content
            content = parts if isinstance(parts, str) else [{"type": "text", "text": part.text} for part in parts]
            messages.append({"role": item.role, "content": content})
        case InputReasoning():
            thoughts = "".join(part.text for part in item.content or item.summary or ())
            beside = {"reasoning_content": thoughts} if thoughts else {}
            messages.append({"role": "assistant", "content": None, **beside})
        case InputCallOutput():
            name = {"name": item.tool} if item.name else {}
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": joined(item.output), **name})
        case InputCall() | InputCustomCall() | HostedItem():
            if item.function is not None:
                if not last:
                    messages.append(last := {"role": "assistant", "content": None})
                call = {"id": item.call_id, "type": "function", "function": item.function}
                last.setdefault("tool_calls", []).append(call)
            if isinstance(item, HostedItem) and item.answer is not None:
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": item.answer})
