"""The endpoints for responses: create, retrieve and delete them. Responses are kept in memory, each for a bounded
time, and for each client a bounded number of bounded size."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.generation import TextGeneration, reply_to
from gateway.openai_api.messages.conversation import ChatMessage
from gateway.openai_api.messages.objects import shown
from gateway.openai_api.responses.conversation import ResponseChat, asked_of, conversation
from gateway.openai_api.responses.replies import ResponseDeleted, ResponseObject
from gateway.openai_api.responses.requests import ResponseRequest
from gateway.openai_api.responses.writer import ResponseWriter
from gateway.openai_api.texts import TextSource
from gateway.openai_api.translated import translated
from specpair.http_service.keys.access import Caller
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import InvalidRequest, UnknownResponse

SECONDS = 3600.0
MOST = 100  # of a client
MOST_CHARACTERS = 16 * 1024 * 1024  # of a client
MOST_OF_ALL = 256 * 1024 * 1024  # characters of all clients


class Kept(NamedTuple):
    """A response, and the conversation up to its end, without instructions."""

    response: ResponseObject
    messages: Sequence[ChatMessage]


class _Entry(NamedTuple):
    client: Hashable
    kept: Kept
    since: float  # seconds
    size: int  # characters


class ResponseStore:
    """The responses. The oldest is forgotten first. Used in the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the oldest first
        self._own: dict[Hashable, OrderedDict[str, int]] = {}  # sizes, by client
        self._size = 0

    def keep(self, client: Hashable, kept: Kept) -> None:
        """Keep a response of `client`, unless it is larger than all that a client may have."""
        size = sum(_size(message) for message in kept.messages)
        if size > MOST_CHARACTERS:
            return
        id = kept.response.id
        self._entries[id] = _Entry(client, kept, self._clock(), size)
        own = self._own.setdefault(client, OrderedDict())
        own[id] = size
        self._size += size
        self._forget_old()
        while len(own) > MOST or sum(own.values()) > MOST_CHARACTERS:
            self._forget(next(iter(own)))
        while self._size > MOST_OF_ALL:
            self._forget(next(iter(self._entries)))

    def find(self, client: Hashable, id: str) -> Kept | None:
        """A response of `client`; None: it is not kept, or no longer, or is another's."""
        self._forget_old()
        entry = self._entries.get(id)
        return entry.kept if entry is not None and entry.client == client else None

    def delete(self, client: Hashable, id: str) -> bool:
        """Forget a response of `client`. Returns whether it was there."""
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
    """Characters of a message, about."""
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
        asked = await self._source.read(request, lambda body: translated(ResponseRequest, body, asked_of))
        previous: list[ChatMessage] = []
        if asked.request.previous_response_id is not None:
            kept = self._kept(caller, asked.request.previous_response_id, "previous_response_id")
            previous = [*kept.messages]
        chat, names = conversation(asked, previous)
        make = partial(self._chats.answers, chat, caller, began, bool(asked.request.stream))
        writer = partial(self._writer, asked, previous, caller)
        return await reply_to(bool(asked.request.stream), make, writer, names)

    async def retrieve_response(self, request: Request) -> Response:
        """A response that is kept. They are kept for an hour, the last hundred of each key."""
        caller = self._source.admit(request)
        if request.query_params.get("stream", "false") != "false":
            raise InvalidRequest("stream: a response that is kept is not streamed, leave it out", param="stream")
        return JsonReply(self._kept(caller, _id(request), "response_id").response.json_bytes())

    async def delete_response(self, request: Request) -> Response:
        """Forget a response."""
        caller, id = self._source.admit(request), _id(request)
        self._kept(caller, id, "response_id")
        self._store.delete(caller.client, id)
        return JsonReply(ResponseDeleted(id=id, object="response", deleted=True).json_bytes())

    def _kept(self, caller: Caller, id: str, parameter: str) -> Kept:
        if (kept := self._store.find(caller.client, id)) is None:
            raise UnknownResponse(
                f"{parameter}: there is no response {shown(id)!r}: they are kept for an hour, the last hundred of each "
                "key, unless store is false. Send the whole conversation as input",
                param=parameter,
            )
        return kept

    def _writer(
        self, asked: ResponseChat, previous: Sequence[ChatMessage], caller: Caller, generation: TextGeneration
    ) -> ResponseWriter:
        def keep(response: ResponseObject, answer: ChatMessage) -> None:
            if asked.request.store is not False:
                self._store.keep(caller.client, Kept(response, [*previous, *asked.chat.messages, answer]))

        return ResponseWriter(generation, asked.request, time.time, keep)


def _id(request: Request) -> str:
    found: str = request.path_params["response_id"]
    return found
