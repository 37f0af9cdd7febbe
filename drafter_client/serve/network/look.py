"""Looks at what is behind one address of a pair: a verifier, or a router with its nodes."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from drafter_client.errors import ConnectionLost, DrafterError
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import read, read_model
from drafter_client.serve.network.messages import NodeStatus
from gateway.router.messages import NodeInfo, NodesResponse
from specpair.protocol.errors import Forbidden, SpecPairError
from specpair.protocol.service_responses import HealthResponse, ModelInfo

_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has found.

    `at`: when, in seconds of the caller's clock.
    `round_trip`: in seconds, the shortest of the last ones; None: none was measured yet.
    `measured_at`: when the last one was.
    `info`: of a verifier that is ready, or was.
    `nodes`: of a router; None: it is none, or does not show them.
    """

    at: float
    status: NodeStatus
    why: str = ""
    health: HealthResponse | None = None
    info: ModelInfo | None = None
    router: bool = False
    nodes: Sequence[NodeInfo] | None = None
    round_trip: float | None = None
    measured_at: float | None = None


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
        return Seen(self.clock(), status, why, health, info, router, nodes, least, self._measured_at)

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
