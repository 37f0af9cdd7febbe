"""The endpoints for responses: create, retrieve and delete them."""

import time
import uuid
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.generation import Choices
from gateway.openai_api.messages.conversation import Message
from gateway.openai_api.messages.parameters import shown
from gateway.openai_api.responses.conversation import Asked, asked_of, conversation
from gateway.openai_api.responses.objects import ResponseDeleted, ResponseObject
from gateway.openai_api.responses.requests import ResponseRequest
from gateway.openai_api.responses.store import Kept, ResponseStore
from gateway.openai_api.responses.writer import ResponseWriter
from gateway.openai_api.texts import TextSource
from gateway.openai_api.translated.names import translated
from gateway.openai_api.translated.running import answer
from specpair.http_service.keys.access import Caller
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import InvalidRequest, UnknownResponse


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
        previous: list[Message] = []
        if asked.request.previous_response_id is not None:
            kept = self._kept(caller, asked.request.previous_response_id, "previous_response_id")
            previous = [*kept.messages]
        chat, names = conversation(asked, previous)
        make = partial(self._chats.answers, chat, caller, began, bool(asked.request.stream))
        writer = partial(self._writer, asked, previous, caller)
        return await answer(bool(asked.request.stream), make, writer, names)

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

    def _writer(self, asked: Asked, previous: Sequence[Message], caller: Caller, choices: Choices) -> ResponseWriter:
        def keep(response: ResponseObject, answer: Message) -> None:
            if asked.request.store is not False:
                self._store.keep(caller.client, Kept(response, [*previous, *asked.chat.messages, answer]))

        return ResponseWriter(asked.request, choices.model, uuid.uuid4().hex, time.time, keep)


def _id(request: Request) -> str:
    found: str = request.path_params["response_id"]
    return found
