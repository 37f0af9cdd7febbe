"""Probes the network of a pair while the feed has readers, and sends them the results."""

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
from drafter_client.serve.messages import Network, NetworkLink, NetworkNode, NodeStatus
from gateway.router.messages import NodeInfo, NodesResponse
from specpair.http_service.replies.events import EventFeed, FeedReader, message_event
from specpair.numbers import milliseconds
from specpair.protocol.errors import Forbidden, SpecPairError
from specpair.protocol.service_responses import HealthResponse, ModelInfo

DRAFTER = "drafter"  # the name of this service among the nodes
PAUSE = 3.0  # seconds between looks
_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe. Points in time are seconds of the caller's clock."""

    at: float
    status: NodeStatus
    why: str = ""
    health: HealthResponse | None = None
    info: ModelInfo | None = None  # of a verifier that is ready, or was
    router: bool = False
    nodes: Sequence[NodeInfo] = ()  # of a router that shows them
    round_trip: float | None = None  # seconds, the shortest of the last ones; None: none was measured yet
    measured_at: float | None = None  # when the last one was


@dataclass(slots=True)
class NodeProbe:
    """Probes one address."""

    client: VerifierClient  # which nobody else uses
    clock: Callable[[], float]
    _links: deque[float] = field(default_factory=lambda: deque(maxlen=_LINKS))
    _measured_at: float | None = None
    _info: ModelInfo | None = None
    _router: bool | None = None  # None: it is not known what answers there

    def look(self, sessions: Sequence[str]) -> ProbeResult:
        """Request the health over the kept connection, which measures the round trip, and all that is still unknown.

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
        nodes: Sequence[NodeInfo] = ()
        missing = ""
        try:
            if self._router is not False:
                nodes = self._nodes(sessions)
            known = self._info and self._info.identity
            if self._router is False and health.identity is not None and known != health.identity:
                self._learn()
        except (DrafterError, SpecPairError) as error:
            missing = str(error)
        status: NodeStatus = "overloaded" if health.status == "ready" and health.overloaded else health.status
        return self._seen(status, health.reason or missing, health, nodes)

    def _health(self) -> tuple[HealthResponse, float]:
        """The health, and the seconds that the request took."""
        self.client.connection.connect()  # takes a round trip, which must not be measured
        asked = self.clock()
        response = self.client.exchange_once("GET", "/health")
        took = self.clock() - asked
        return read(self.client.url + "/health", HealthResponse, response.content), took

    def _seen(
        self, status: NodeStatus, why: str, health: HealthResponse | None = None, nodes: Sequence[NodeInfo] = ()
    ) -> ProbeResult:
        return ProbeResult(
            at=self.clock(),
            status=status,
            why=why,
            health=health,
            info=None if self._router else self._info,
            router=self._router is True,
            nodes=nodes,
            round_trip=min(self._links, default=None),
            measured_at=self._measured_at,
        )

    def _nodes(self, sessions: Sequence[str]) -> Sequence[NodeInfo]:
        """The nodes, if a router answers. Raises Forbidden if the router does not show them, and other errors."""
        query = urlencode([("session", each) for each in sessions])
        response = self.client.exchange_once("GET", f"/nodes?{query}" if query else "/nodes")
        if response.status_code == 200:
            found = read(self.client.url + "/nodes", NodesResponse, response.content)
            self._router = True
            return found.nodes
        if response.status_code in (401, 403):
            self._router = True
            raise Forbidden(f"the router does not show its verifiers to this drafter: {self.client.refusal(response)}")
        if response.status_code in (404, 405):
            self._router = False
            return ()
        raise self.client.refusal(response)

    def _learn(self) -> None:
        """Ask what a verifier serves. Raises the error of the reply."""
        response = self.client.exchange_once("GET", "/model")
        if response.status_code != 200:
            raise self.client.refusal(response)
        self._info = read_model(self.client.url + "/model", response.content)


class NodePace(NamedTuple):
    """A node's counters since its start, as reported at the time `at`, and its rates since the last report."""

    at: float
    tokens: int
    pass_seconds: float | None  # None: it does not say
    tokens_per_second: float | None = None
    utilisation: float | None = None


def paced(before: NodePace | None, now: NodePace) -> NodePace:
    """`now` with the rates since `before`; None: the first report."""
    if before is None or now.tokens < before.tokens:  # it was started anew
        return now
    took = now.at - before.at
    if took <= 0.0:  # a router has not looked since
        return before
    busy = None
    if before.pass_seconds is not None and now.pass_seconds is not None:
        busy = round(min(1.0, max(0.0, now.pass_seconds - before.pass_seconds) / took), 3)
    return now._replace(tokens_per_second=round((now.tokens - before.tokens) / took, 2), utilisation=busy)


class NetworkFeed(EventFeed[bytes]):
    """Hands the event `network` to its readers.

    While there are any, a thread for each address of the pair probes over a connection of its own: no text waits.
    """

    def __init__(
        self,
        pair: Pair,
        own: Callable[[], tuple[NetworkNode, int]],
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`own`: this service, and the tokens that it has generated. `pause`: seconds between looks."""
        super().__init__()
        self._pair, self._own, self._pause, self._clock = pair, own, pause, clock
        self._lock = threading.Lock()  # guards what follows
        self._readers_there = 0
        self._stop = Stop()  # of the present looks
        self._threads: list[threading.Thread] = []
        self._seen: dict[VerifierAddress, ProbeResult] = {}
        self._paces: dict[str, NodePace] = {}  # by node

    def network(self) -> Network:
        texts, (own, generated_tokens) = self._pair.texts_under_way, self._own()
        nodes, links = {own.name: own}, list[NetworkLink]()
        with self._lock:
            for each in self._pair.verifiers:
                name, seen = str(each.address), self._seen.get(each.address)
                here = sum(text.address == each.address for text in texts)
                nodes[name] = _node(name, seen, each.why, here, self._paces.get(name))
                measured = None if seen is None else seen.measured_at
                age = None if measured is None else self._clock() - measured
                round_trip = None if seen is None else seen.round_trip
                links.append(_link(DRAFTER, name, milliseconds(round_trip), age))
                if seen is None:
                    continue
                for node in seen.nodes:
                    age = None if node.looked_ago is None else node.looked_ago + self._clock() - seen.at
                    links.append(_link(name, node.url, node.round_trip_ms, age))
                    told = _node_of_router(node, here, self._paces.get(node.url))
                    if node.url in nodes:  # that of another router, too
                        own_texts = (nodes[node.url].own_texts or 0) + (told.own_texts or 0)
                        told = nodes[node.url].model_copy(update={"own_texts": own_texts})
                    nodes[node.url] = told
        return Network(nodes=[*nodes.values()], links=links, generated_tokens=generated_tokens)

    @contextmanager
    def heard_by(self, reader: FeedReader[bytes]) -> Iterator[None]:
        """As of any feed. Probing begins with the first reader, and ends with the last."""
        with super().heard_by(reader):
            with self._lock:
                self._readers_there += 1
                if self._readers_there == 1:
                    self._begin()
            try:
                reader.put(message_event(self.network(), "network"))
                yield
            finally:
                with self._lock:
                    self._readers_there -= 1
                    if not self._readers_there:
                        self._stop.set()

    def end(self) -> None:
        """Wait for the threads. Close it before, so that its readers leave."""
        with self._lock:
            self._stop.set()
            threads = self._threads
        for each in threads:
            each.join()

    def _begin(self) -> None:
        self._stop = Stop()
        self._seen.clear()
        self._paces.clear()
        self._threads = [each for each in self._threads if each.is_alive()]
        for each in self._pair.verifiers:
            looks = threading.Thread(target=self._watch, args=(each.address, self._stop), name="network", daemon=True)
            self._threads.append(looks)
            looks.start()

    def _watch(self, address: VerifierAddress, stop: Stop) -> None:
        with closing(self._pair.connection_to(address)) as client, stop.breaking(client.abort):
            looking = NodeProbe(client, self._clock)
            while not stop.is_set():
                sessions = [each.session_id for each in self._pair.texts_under_way if each.address == address]
                self._note(address, looking.look(sessions), stop)
                stop.wait(self._pause)

    def _note(self, address: VerifierAddress, seen: ProbeResult, stop: Stop) -> None:
        with self._lock:
            if stop.is_set():  # what an aborted look says is not so
                return
            self._seen[address] = seen
            for name, told in _reported(address, seen):
                before = self._paces.pop(name, None)
                if told is not None:
                    self._paces[name] = paced(before, told)
        self.put(message_event(self.network(), "network"))


def _reported(address: VerifierAddress, seen: ProbeResult) -> Iterator[tuple[str, NodePace | None]]:
    """The counters that the nodes of a probe reported, by name."""
    if not seen.router:
        health = seen.health
        yield str(address), None if health is None else _pace(seen.at, health.generated_tokens, health.pass_seconds)
    for each in seen.nodes:
        at = None if each.looked_ago is None or not _is_there(each) else seen.at - each.looked_ago
        yield each.url, _pace(at, each.generated_tokens, each.pass_seconds)


def _pace(at: float | None, tokens: int | None, pass_seconds: float | None) -> NodePace | None:
    return None if at is None or tokens is None else NodePace(at, tokens, pass_seconds)


def _is_there(node: NodeInfo) -> bool:
    return node.status in ("ready", "overloaded", "draining")


def _node(name: str, seen: ProbeResult | None, untaken: str, own_texts: int, pace: NodePace | None) -> NetworkNode:
    """`seen`: None: not probed yet. `untaken`: why the pair gives the node no new text; empty: it does."""
    if seen is None:
        return NetworkNode(name=name, kind="verifier", status="unknown", own_texts=own_texts)
    health, info = seen.health, seen.info
    return NetworkNode(
        name=name,
        kind="router" if seen.router else "verifier",
        status=seen.status,
        why=seen.why or untaken or None,
        progress=None if health is None else health.progress,
        model=(health and health.model) or (info and info.name) or None,
        slots=None if info is None else info.rows,
        texts=None if health is None else health.texts,
        waiting=None if health is None else health.waiting,
        own_texts=own_texts,
        tokens_per_second=pace and pace.tokens_per_second,
        utilisation=pace and pace.utilisation,
    )


def _node_of_router(node: NodeInfo, own_texts: int, pace: NodePace | None) -> NetworkNode:
    """`own_texts`: of this service that are at the router."""
    there = _is_there(node)
    return NetworkNode(
        name=node.url,
        kind=node.kind or "verifier",
        status=node.status,
        why=node.why,
        model=node.model,
        slots=node.slots,
        texts=node.texts if there else None,
        waiting=node.waiting if there else None,
        own_texts=node.named_sessions if own_texts else 0,
        tokens_per_second=pace and pace.tokens_per_second,
        utilisation=pace and pace.utilisation,
    )


def _link(near: str, far: str, round_trip_ms: float | None, age: float | None) -> NetworkLink:
    age_s = None if age is None else round(max(0.0, age), 1)
    return NetworkLink(near=near, far=far, round_trip_ms=round_trip_ms, age_s=age_s)
