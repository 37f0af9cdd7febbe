"""Looks at the network while somebody wants to see it, and tells what it finds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from drafter_client.http.addresses import Address
from drafter_client.http.stop import Stop
from drafter_client.pair import Pair
from drafter_client.serve.network.look import Looking, Seen
from drafter_client.serve.network.messages import Network, NetworkNode
from drafter_client.serve.network.view import Behind, Paces, done, network
from specpair.http_service.replies.event_feed import EventFeed, FeedReader
from specpair.http_service.replies.events import message_event

PAUSE = 3.0  # seconds between looks
NAME = "network"  # of the event


class Own(NamedTuple):
    """What this service knows of itself."""

    node: NetworkNode
    generated_tokens: int


class NetworkFeed(EventFeed[bytes]):
    """Hands the event `network` to its readers.

    While there are any, a thread for each address of the pair looks, over a connection of its own: no text waits.
    """

    def __init__(
        self,
        pair: Pair,
        own: Callable[[], Own],
        token_price: float | None = None,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`token_price`: of a million tokens of a verifier that does not tell its own.
        `pause`: seconds between looks.
        `clock`: returns seconds.
        """
        super().__init__()
        self._pair, self._own, self._token_price = pair, own, token_price
        self._pause, self._clock = pause, clock
        self._lock = threading.Lock()  # guards what follows
        self._readers_there = 0
        self._stop = Stop()  # of the present looks
        self._threads: list[threading.Thread] = []
        self._seen: dict[Address, Seen] = {}
        self._paces = Paces()

    def event(self) -> bytes:
        """The event as it is now."""
        return message_event(self.network(), NAME)

    def network(self) -> Network:
        """What is known now."""
        texts = self._pair.texts_under_way
        own = self._own()
        with self._lock:
            behind = [
                Behind(
                    each.address,
                    self._seen.get(each.address),
                    each.why,
                    sum(text.address == each.address for text in texts),
                )
                for each in self._pair.verifiers
            ]
            return network(own.node, behind, self._paces, self._clock(), own.generated_tokens, self._token_price)

    @contextmanager
    def heard_by(self, reader: FeedReader[bytes]) -> Iterator[None]:
        """As of any feed. With the first reader the looks begin, with the last they end."""
        with super().heard_by(reader):
            self._came()
            try:
                reader.put(self.event())
                yield
            finally:
                self._left()

    def end(self) -> None:
        """Wait for the threads. Close it before, so that its readers leave."""
        with self._lock:
            self._stop.set()
            threads = self._threads
        for each in threads:
            each.join()

    def _came(self) -> None:
        with self._lock:
            self._readers_there += 1
            if self._readers_there > 1:
                return
            self._stop, self._paces = Stop(), Paces()
            self._seen.clear()
            self._threads = [each for each in self._threads if each.is_alive()]
            for each in self._pair.verifiers:
                looks = threading.Thread(
                    target=self._watch, args=(each.address, self._stop), name="network", daemon=True
                )
                self._threads.append(looks)
                looks.start()

    def _left(self) -> None:
        with self._lock:
            self._readers_there -= 1
            if not self._readers_there:
                self._stop.set()

    def _watch(self, address: Address, stop: Stop) -> None:
        with closing(self._pair.connection_to(address)) as client, stop.breaking(client.abort):
            looking = Looking(client, self._clock)
            while not stop.is_set():
                sessions = [each.session_id for each in self._pair.texts_under_way if each.address == address]
                self._note(address, looking.look(sessions), stop)
                stop.wait(self._pause)

    def _note(self, address: Address, seen: Seen, stop: Stop) -> None:
        with self._lock:
            if stop.is_set():  # what an aborted look says is not so
                return
            self._seen[address] = seen
            for name, told in done(address, seen):
                self._paces.note(name, told)
        self.put(self.event())
