"""A chat that is run for another API, whose writer tells it in that API's objects and events."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from starlette.responses import Response

from gateway.openai_api.generation import Choices, MakeTexts, anew
from gateway.openai_api.messages.replies import Reply
from gateway.openai_api.translated.names import Names, renamed
from specpair.http_service.replies.events import EventStream, event_bytes
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import SpecPairError, TargetChanged


class Event(NamedTuple):
    """A named event of a stream."""

    name: str
    data: Reply

    def bytes(self) -> bytes:
        """The event as it is sent."""
        return event_bytes(self.data.json_bytes(), self.name)


class Writer(Protocol):
    """Writes one answer."""

    def begin(self) -> Sequence[Event]:
        """The events before the first chunk."""

    def silent(self) -> Sequence[Event]:
        """The events beside a comment, when there was no chunk for a while: some readers pass over comments."""

    def take(self, chunk: Reply) -> Sequence[Event]:
        """The events for a chunk of the chat."""

    def end(self) -> Sequence[Event]:
        """The events after the last one."""

    def failed(self, error: SpecPairError) -> Sequence[Event]:
        """The events that report an error."""

    def reply(self) -> Reply:
        """The whole reply, after `end`."""


NewWriter = Callable[[Choices], Writer]


async def answer(stream: bool, make: MakeTexts, new: NewWriter, names: Names) -> Response:
    """The reply to a request: JSON, or server-sent events with `stream`.

    `names`: of the chat's parameters in the request, for errors.

    Raises the SpecPairError of its text.
    """
    try:
        if stream:
            choices = await make()
            return EventStream(_events(choices, make, new(choices), names))
        return JsonReply((await _with_target(make, new)).json_bytes())
    except SpecPairError as error:
        raise renamed(error, names) from None


async def _with_target(make: MakeTexts, new: NewWriter) -> Reply:
    choices = await make()
    try:
        return await _whole(choices, new(choices))
    except TargetChanged as error:
        choices = await anew(make, error)
        return await _whole(choices, new(choices))


async def _whole(choices: Choices, writer: Writer) -> Reply:
    writer.begin()
    async with aclosing(choices.chunks()) as chunks:
        async for chunk in chunks:
            if chunk is not None:
                writer.take(chunk)
    writer.end()
    return writer.reply()


async def _events(choices: Choices, make: MakeTexts, writer: Writer, names: Names) -> AsyncIterator[bytes]:
    try:
        async with aclosing(choices.chunks(make)) as chunks:
            for event in writer.begin():
                yield event.bytes()
            async for chunk in chunks:
                if chunk is None:
                    yield choices.silence
                for event in writer.silent() if chunk is None else writer.take(chunk):
                    yield event.bytes()
    except SpecPairError as error:
        for event in writer.failed(renamed(error, names)):
            yield event.bytes()
        return
    for event in writer.end():
        yield event.bytes()
