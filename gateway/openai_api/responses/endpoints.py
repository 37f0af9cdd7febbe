"""OpenAI's Responses endpoints: each request is read as a chat; responses are kept in memory for later ones."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from threading import RLock
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.generation import TextGeneration, reply_to
from gateway.openai_api.messages.conversation import ChatMessage, joined
from gateway.openai_api.messages.objects import shown
from gateway.openai_api.messages.requests import ChatRequest, chat_of, given, translated
from gateway.openai_api.messages.thinking import thinking_of
from gateway.openai_api.responses import requests
from gateway.openai_api.responses.replies import OutputItem, ResponseDeleted, ResponseObject
from gateway.openai_api.responses.requests import (
    HostedItem,
    InputCall,
    InputCallOutput,
    InputCustomCall,
    InputMessage,
    InputReasoning,
    Item,
    ItemReference,
    ResponseRequest,
)
from gateway.openai_api.responses.writer import ResponseWriter
from gateway.openai_api.texts import TextSource
from specpair.http_service.hints import take_hint
from specpair.http_service.keys.access import Caller
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import InvalidRequest, UnknownResponse

Json = dict[str, Any]
Find = Callable[[str], OutputItem | None]  # an item of a kept response, by its id
_ITEM: TypeAdapter[Item] = TypeAdapter(Item)
_NAMES = {
    "messages": "input",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
}
_SYSTEM = ("system", "developer")


class ResponseChat(NamedTuple):
    """A request, and a chat of its own messages only. `names`: the parameters that hold the messages."""

    request: ResponseRequest
    chat: ChatRequest
    names: list[str]


def asked_of(request: ResponseRequest, find: Find) -> ResponseChat:
    """The chat of a request. Raises InvalidRequest, in the request's names, and UnknownResponse.

    `find`: finds items that the request refers to.
    """
    messages, names = messages_of(request.input, find)
    text = None if request.text is None else request.text.format
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "max_completion_tokens": request.max_output_tokens,
        "response_format": None if text is None else text.model_dump(include={"type", "schema_"}, by_alias=True),
        "logprobs": request.logprobs,
        "top_logprobs": request.top_logprobs,
        "tools": [{"type": each.tool.type, "function": _function(each)} for each in request.functions()],
        "parallel_tool_calls": request.parallel_tool_calls,
        "tool_choice": request.tool_choice,
    } | thinking_of(request)
    return ResponseChat(request, chat_of(given(request, requests.TEXT_FIELDS) | body, names_of(request, names)), names)


def conversation(asked: ResponseChat, previous: Sequence[ChatMessage]) -> tuple[ChatRequest, dict[str, str]]:
    """The chat with all messages: instructions, those of the previous response, its own; and the names of its
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
    tools |= {f"tools.{at}.custom": each.path for at, each in enumerate(request.functions())}
    return _NAMES | schema | tools | {f"messages.{at}": name for at, name in enumerate(messages)}


def _function(named: requests.NamedFunction) -> dict[str, Any]:
    fields = named.tool.model_dump(exclude={"type"}) | {"name": named.name, "description": named.description}
    return {name: value for name, value in fields.items() if value is not None}


SECONDS = 3600.0
MOST = 1000  # of a client
MOST_CHARACTERS = 16 * 1024 * 1024  # of a client
MOST_OF_ALL = 256 * 1024 * 1024  # characters of all clients


class KeptResponse(NamedTuple):
    """A response, and the conversation up to its end, without instructions."""

    response: ResponseObject
    messages: Sequence[ChatMessage]


class _Entry(NamedTuple):
    client: Hashable
    kept: KeptResponse
    since: float  # seconds
    size: int  # characters


_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{32})\d+")  # the id of the response, and which item of its output


class ResponseStore:
    """Kept responses; drops the one that was used least recently first. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: in seconds."""
        self._clock, self._lock = clock, RLock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the least recently used first
        self._own: dict[Hashable, OrderedDict[str, int]] = {}  # sizes, by client
        self._size = 0

    def keep(self, client: Hashable, kept: KeptResponse) -> None:
        """Keep a response of `client`, unless it is larger than all that a client may have."""
        size = sum(_size(message) for message in kept.messages) + len(kept.response.json_bytes())
        if size > MOST_CHARACTERS:
            return
        id = kept.response.id
        with self._lock:
            self._entries[id] = _Entry(client, kept, self._clock(), size)
            own = self._own.setdefault(client, OrderedDict())
            own[id] = size
            self._size += size
            self._forget_old()
            while len(own) > MOST or sum(own.values()) > MOST_CHARACTERS:
                self._forget(next(iter(own)))
            while self._size > MOST_OF_ALL:
                self._forget(next(iter(self._entries)))

    def find(self, client: Hashable, id: str) -> KeptResponse | None:
        """A response of `client`, which is now used; None: it is not kept any more, or is another's."""
        with self._lock:
            self._forget_old()
            entry = self._entries.get(id)
            if entry is None or entry.client != client:
                return None
            self._entries[id] = entry._replace(since=self._clock())
            self._entries.move_to_end(id)
            self._own[client].move_to_end(id)
            return entry.kept

    def item(self, client: Hashable, id: str) -> OutputItem | None:
        """An item of the output of a response of `client`, which is now used; None: it is not kept any more."""
        found = _ITEM_ID.fullmatch(id)
        kept = self.find(client, f"resp_{found[1]}") if found else None
        return None if kept is None else next((item for item in kept.response.output if item.id == id), None)

    def delete(self, client: Hashable, id: str) -> bool:
        """Forget a response of `client`. Returns whether it was there."""
        with self._lock:
            found = self.find(client, id) is not None
            if found:
                self._forget(id)
            return found

    def _forget_old(self) -> None:
        oldest = self._clock() - SECONDS
        while self._entries and next(iter(self._entries.values())).since < oldest:
            self._forget(next(iter(self._entries)))

    def _forget(self, id: str) -> None:
        entry = self._entries.pop(id)
        own = self._own[entry.client]
        del own[id]
        if not own:
            del self._own[entry.client]
        self._size -= entry.size


def _size(message: ChatMessage) -> int:
    """Approximate characters of it."""
    calls = sum(len(str(call.function.arguments or "")) for call in message.tool_calls or ())
    return 100 + len(message.text) + len(message.reasoning_content or "") + calls


class ResponseEndpoints:
    """The endpoints as methods, which raise SpecPairError."""

    def __init__(self, source: TextSource, chats: Endpoints) -> None:
        self._source, self._chats = source, chats
        self._store = ResponseStore(time.monotonic)

    async def create_response(self, request: Request) -> Response:
        """Answer a conversation: JSON, or server-sent events with `stream`."""
        began, caller = time.monotonic(), self._source.admit(request)
        self._chats.places.check()
        read = partial(asked_of, find=partial(self._store.item, caller.client))
        asked = await self._source.read(request, lambda body: translated(ResponseRequest, body, read))
        previous: list[ChatMessage] = []
        if asked.request.previous_response_id:
            kept = self._kept(caller, asked.request.previous_response_id, "previous_response_id")
            previous = [*kept.messages]
        chat, names = conversation(asked, previous)
        make = partial(self._chats.answers, chat, caller, began, bool(asked.request.stream))
        writer = partial(self._writer, asked, previous, caller)
        return await reply_to(bool(asked.request.stream), make, writer, names)

    async def retrieve_response(self, request: Request) -> Response:
        """A response that is kept. They are kept for an hour behind their last use, the last thousand of each key."""
        caller = self._source.admit(request)
        if request.query_params.get("stream", "false") != "false":
            raise InvalidRequest("stream: a response that is kept is not streamed, leave it out", param="stream")
        kept = self._kept(caller, request.path_params["response_id"], "response_id")
        return JsonReply(kept.response.json_bytes())

    async def delete_response(self, request: Request) -> Response:
        """Forget a response."""
        caller, id = self._source.admit(request), request.path_params["response_id"]
        self._kept(caller, id, "response_id")
        self._store.delete(caller.client, id)
        return JsonReply(ResponseDeleted(id=id, object="response", deleted=True).json_bytes())

    def _kept(self, caller: Caller, id: str, parameter: str) -> KeptResponse:
        if (kept := self._store.find(caller.client, id)) is None:
            raise UnknownResponse(
                f"{parameter}: there is no response {shown(id)!r}: they are kept for an hour behind their last use, "
                "unless store is false. Send the whole conversation as input",
                param=parameter,
            )
        return kept

    def _writer(
        self, asked: ResponseChat, previous: Sequence[ChatMessage], caller: Caller, generation: TextGeneration
    ) -> ResponseWriter:
        def keep(response: ResponseObject, answer: ChatMessage) -> None:
            if asked.request.store is not False:
                self._store.keep(caller.client, KeptResponse(response, [*previous, *asked.chat.messages, answer]))

        return ResponseWriter(generation, asked.request, time.time, keep)


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
