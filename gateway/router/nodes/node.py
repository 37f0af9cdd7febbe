"""What the router knows of one node. Times are seconds of one clock."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from gateway.balancing.candidate import queue_time
from specpair.numbers import quantile
from specpair.protocol.service_responses import HealthResponse, ModelInfo, ServiceStatus

_HOUR = 3600.0  # seconds


@dataclass
class TokenPace:
    """Tokens and hours of a node since it was first seen. It counts from there on when the node starts again."""

    tokens: int = 0
    seconds: float = 0.0  # for which the node was ready
    _last: tuple[float, int] | None = None  # when it was looked at, and the tokens since the node's start

    def note(self, now: float, generated: int | None) -> None:
        """Note what the node told at a look. `generated`: tokens since its start; None: it is not ready."""
        if generated is None:
            self._last = None
            return
        if self._last is not None:
            since, before = self._last
            self.seconds += now - since
            self.tokens += generated - before if generated >= before else generated
        self._last = now, generated

    def cost(self, hourly_price: float) -> float:
        """What the time has cost, idle time included."""
        return hourly_price * self.seconds / _HOUR

    def price(self, hourly_price: float) -> float | None:
        """What a million tokens have cost; None: there are no tokens yet."""
        return 1e6 * self.cost(hourly_price) / self.tokens if self.tokens else None

    @property
    def tokens_per_second(self) -> float | None:
        """On average, idle time included; None: it was not looked at twice."""
        return self.tokens / self.seconds if self.seconds else None


Kind = Literal["verifier", "drafter"]
Status = ServiceStatus | Literal["unknown", "away", "refused"]  # unknown: it was not looked at yet
VERIFIER: Kind = "verifier"
DRAFTER: Kind = "drafter"
_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own
_LATENCIES = 512  # requests whose latency is kept
_FIRST_OUT, _LONGEST_OUT = 0.5, 8.0  # seconds that a node gets no new text after a failure; doubled with each in a row


@dataclass(frozen=True)
class NodeSpec:
    """What somebody says of a node: the list, the file, or the node itself."""

    url: str  # one spelling: see `node_url`
    model: str | None = None  # the only one that it may serve; None: any
    weight: float = 1.0
    hourly_price: float | None = None


@dataclass(eq=False)
class Node:
    """A node. It is a `Candidate` of the policies."""

    spec: NodeSpec
    expires: float | None = None  # when it leaves unless it reports again; None: never
    status: Status = "unknown"
    why: str = ""  # it is not ready, in words
    health: HealthResponse | None = None  # the last one that was told while it was ready
    info: ModelInfo | None = None  # of a verifier
    progress: float | None = None  # share of its model that is loaded, while it loads
    kind: Kind = VERIFIER
    model: str = ""  # empty: not known yet
    begun: int = 0  # texts that have gone there since the last look
    in_flight: int = 0  # requests
    beginning: int = 0  # of these, those that begin a text
    requests: int = 0
    failures: int = 0
    in_a_row: int = 0  # failures
    out_until: float = float("-inf")
    links: deque[float] = field(default_factory=lambda: deque(maxlen=_LINKS))
    looked_at: float | None = None  # when the last of them was measured
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES))  # to the begin of the reply
    pace: TokenPace = field(default_factory=TokenPace)

    @property
    def name(self) -> str:
        return self.spec.url

    @property
    def weight(self) -> float:
        return self.spec.weight

    @property
    def identity(self) -> str:
        """That of a verifier; empty: unknown, or it is a drafter."""
        return "" if self.health is None else self.health.identity or ""

    @property
    def defines_texts(self) -> tuple[object, object]:
        """What the nodes of one model have in common, each part as far as it is known: the first part of the identity,
        a drafter's verifier's too, and the fingerprint of the vocabulary, which only a verifier's `/model` tells."""
        identity = self.identity or (self.health and self.health.target_identity) or ""
        return identity.partition("-")[0], self.info and self.info.vocabulary

    @property
    def texts(self) -> int:
        """Texts under way: as it told, with those since then. A drafter does not tell: its requests for texts count."""
        told = 0 if self.health is None else self.health.texts or 0
        return max(told + self.begun, self.beginning)

    @property
    def waiting(self) -> int:
        """Requests that wait for a pass."""
        return 0 if self.health is None else self.health.waiting or 0

    @property
    def queue(self) -> int:
        return self.texts + self.waiting

    @property
    def link(self) -> float:
        """The round trip."""
        return min(self.links, default=0.0)

    @property
    def queue_time(self) -> float:
        """See `Candidate`. A drafter tells no times of passes: its requests' own stand for them."""
        if self.info is not None and self.info.pass_times:
            return queue_time(self.link, self.info.pass_times, max(1, self.info.rows), self.texts, self.waiting)
        known = [self.latency(0.5)] if self.latencies else []
        return queue_time(self.link, known, 1, self.texts, self.waiting)

    @property
    def work(self) -> float:
        """See `Candidate`. How long texts will be is not known: they are counted."""
        return float(self.texts)

    @property
    def deadline(self) -> float:
        """See `Candidate`. No request says one."""
        return math.inf

    @property
    def reachable(self) -> bool:
        """Whether it goes on with the sessions that it has."""
        return self.status in ("ready", "overloaded", "draining")

    def takes_texts(self, now: float) -> bool:
        """Whether it takes new texts."""
        return self.status in ("ready", "overloaded") and self.out_until <= now

    def latency(self, share: float) -> float:
        """Seconds to the begin of a reply: the quantile `share` of the last requests, at least one."""
        return quantile(self.latencies, share)

    def looked(self, seconds: float, now: float) -> None:
        """Note that it has answered a look that it is ready, after this time."""
        self.links.append(seconds)
        self.looked_at = now

    def answered(self, seconds: float) -> None:
        """Note that it has begun to reply to a request after this time."""
        self.in_a_row = 0
        self.latencies.append(seconds)

    def failed(self, now: float) -> None:
        """Note that it has not replied to a request: it gets no new texts for a while."""
        self.failures += 1
        self.in_a_row += 1
        self.out_until = now + min(_FIRST_OUT * 2.0 ** min(self.in_a_row - 1, 10), _LONGEST_OUT)
