"""Responses that are kept in memory: each for a bounded time, and for each client a bounded number of bounded size."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from gateway.openai_api.messages.conversation import Message
from gateway.openai_api.responses.objects import ResponseObject

SECONDS = 3600.0
MOST = 100  # of a client
MOST_CHARACTERS = 16 * 1024 * 1024  # of a client
MOST_OF_ALL = 256 * 1024 * 1024  # characters of all clients


class Kept(NamedTuple):
    """A response, and the conversation up to its end, without instructions."""

    response: ResponseObject
    messages: Sequence[Message]


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


def _size(message: Message) -> int:
    """Characters of a message, about."""
    calls = sum(len(str(call.function.arguments or "")) for call in message.tool_calls or ())
    return 100 + len(message.text) + len(message.reasoning_content or "") + calls
