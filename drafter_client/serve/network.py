"""Looks at the network of a pair while somebody wants to see it, and tells what it finds."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode

from drafter_client.errors import ConnectionLost, DrafterError
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Stop
from drafter_client.http.responses import read, read_model
from drafter_client.pair import Pair
from drafter_client.serve.messages import Network, NetworkNode, NodeStatus
from drafter_client.serve.network_view import Behind, NodePaces, Seen, done, network
from gateway.router.messages import NodeInfo, NodesResponse
from specpair.http_service.replies.events import EventFeed, FeedReader, message_event
from specpair.protocol.errors import Forbidden, SpecPairError
from specpair.protocol.service_responses import HealthResponse, ModelInfo

_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own


@dataclass(slots=True)
class Looking:
    """Looks again and again. `clock`: returns seconds."""

    client: VerifierClient  # which nobody else uses
    clock: Callable[[], float]
    _links: deque[float] = field(default_factory=lambda: deque(maxlen=_LINKS))
    _measured_at: float | None = None
    _info: ModelInfo | None = None
    _router: bool | None = None  # None: it is not known what answers there

    def look(self, sessions: Sequence[str]) -> Seen:
        """Ask for the health over the kept connection, which measures the round trip, and for what else is not known.

        `sessions`: ids of texts under way, whose nodes a router is asked for.
        """
        try:
            try:
                health, took = self._health()
            except ConnectionLost:  # the kept connection was of a service that was started anew, perhaps
                health, took = self._health()
        except DrafterError as error:
            self._router = None  # another service may come in its place
            return self._seen("away", str(error))
        if health.access is not None:
            return self._seen("refused", "it does not take the key of this drafter", health)
        if health.status == "ready":
            self._links.append(took)
            self._measured_at = self.clock()
        nodes: Sequence[NodeInfo] | None = None
        missing = ""
        try:
            if self._router is not False:
                nodes = self._nodes(sessions)
            if self._router is False and health.identity is not None:
                self._learn(health.identity)
        except (DrafterError, SpecPairError) as error:
            missing = str(error)
        status: NodeStatus = "overloaded" if health.status == "ready" and health.overloaded else health.status
        return self._seen(status, health.reason or missing, health, nodes)

    def _health(self) -> tuple[HealthResponse, float]:
        """What the health is, and the seconds that it took to ask."""
        self.client.connection.connect()  # takes a round trip, which must not be measured
        asked = self.clock()
        response = self.client.exchange_once("GET", "/health")
        took = self.clock() - asked
        return read(self.client.url + "/health", HealthResponse, response.content), took

    def _seen(
        self,
        status: NodeStatus,
        why: str,
        health: HealthResponse | None = None,
        nodes: Sequence[NodeInfo] | None = None,
    ) -> Seen:
        least = min(self._links, default=None)
        router = self._router is True
        info = None if router else self._info
        return Seen(
            self.clock(),
            status,
            why,
            health,
            info,
            router,
            nodes=nodes,
            round_trip=least,
            measured_at=self._measured_at,
        )

    def _nodes(self, sessions: Sequence[str]) -> Sequence[NodeInfo] | None:
        """The nodes, if a router answers; None if a verifier does. Raises Forbidden if the router does not show them,
        and other errors."""
        query = urlencode([("session", each) for each in sessions])
        response = self.client.exchange_once("GET", f"/nodes?{query}" if query else "/nodes")
        if response.status_code == 200:
            found = read(self.client.url + "/nodes", NodesResponse, response.content)
            self._router = True
            return found.nodes
        if response.status_code in (401, 403):
            self._router = True
            raise Forbidden(f"the verifiers behind it are not shown to this drafter: {self.client.refusal(response)}")
        if response.status_code in (404, 405):
            self._router = False
            return None
        raise self.client.refusal(response)

    def _learn(self, identity: str) -> None:
        """Ask what a verifier serves, if that may have changed. Raises the error of the reply."""
        if self._info is None or self._info.identity != identity:
            response = self.client.exchange_once("GET", "/model")
            if response.status_code != 200:
                raise self.client.refusal(response)
            self._info = read_model(self.client.url + "/model", response.content)


PAUSE = 3.0  # seconds between looks
NAME = "network"  # of the event


class OwnNode(NamedTuple):
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
        own: Callable[[], OwnNode],
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
        self._seen: dict[VerifierAddress, Seen] = {}
        self._paces = NodePaces()

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
            self._stop, self._paces = Stop(), NodePaces()
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

    def _watch(self, address: VerifierAddress, stop: Stop) -> None:
        with closing(self._pair.connection_to(address)) as client, stop.breaking(client.abort):
            looking = Looking(client, self._clock)
            while not stop.is_set():
                sessions = [each.session_id for each in self._pair.texts_under_way if each.address == address]
                self._note(address, looking.look(sessions), stop)
                stop.wait(self._pause)

    def _note(self, address: VerifierAddress, seen: Seen, stop: Stop) -> None:
        with self._lock:
            if stop.is_set():  # what an aborted look says is not so
                return
            self._seen[address] = seen
            for name, told in done(address, seen):
                self._paces.note(name, told)
        self.put(self.event())
