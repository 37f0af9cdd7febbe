"""The nodes: the state of each, the models that they serve, and which nodes can take a request.

Times are seconds of one clock. Used in the event loop.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from gateway.balancing import queue_time
from gateway.router.messages import NodeSpec
from specpair.numbers import quantile
from specpair.protocol.errors import BadGateway, ModelLoading, ShuttingDown, SpecPairError, UnknownModel
from specpair.protocol.service_responses import HealthResponse, ModelInfo, ServiceStatus


@dataclass
class TokenPace:
    """Tokens and hours of a node since it was first seen. It counts from there on when the node starts again."""

    tokens: int = 0
    seconds: float = 0.0  # for which the node was ready
    _last: tuple[float, int] | None = None  # when it was looked at, and the tokens since the node's start

    def note(self, now: float, generated: int | None) -> None:
        """Note a probe's result. `generated`: tokens since its start; None: it is not ready."""
        if generated is None:
            self._last = None
            return
        if self._last is not None:
            since, before = self._last
            self.seconds += now - since
            self.tokens += generated - before if generated >= before else generated
        self._last = now, generated

    def cost(self, hourly_price: float) -> float:
        """Cost so far, idle time included."""
        return hourly_price * self.seconds / 3600.0

    def price(self, hourly_price: float) -> float | None:
        """Cost of a million tokens; None: there are no tokens yet."""
        return 1e6 * self.cost(hourly_price) / self.tokens if self.tokens else None

    @property
    def tokens_per_second(self) -> float | None:
        """On average, idle time included; None: fewer than two probes."""
        return self.tokens / self.seconds if self.seconds else None


Kind = Literal["verifier", "drafter"]
Status = ServiceStatus | Literal["unknown", "away", "refused"]  # unknown: it was not looked at yet
VERIFIER: Kind = "verifier"
DRAFTER: Kind = "drafter"
_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own
_LATENCIES = 512  # requests whose latency is kept
_FIRST_OUT, _LONGEST_OUT = 0.5, 8.0  # seconds that a node gets no new text after a failure; doubled with each in a row


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
        """A verifier's identity; empty: unknown, or a drafter."""
        return (self.health and self.health.identity) or ""

    @property
    def defines_texts(self) -> tuple[object, object]:
        """Properties that all nodes of one model share, as far as known: the first part of the identity (for a drafter,
        of its verifier), and the fingerprint of the vocabulary, which only a verifier's `/model` has."""
        identity = self.identity or (self.health and self.health.target_identity) or ""
        return identity.partition("-")[0], self.info and self.info.vocabulary

    @property
    def texts(self) -> int:
        """Texts under way: as reported, plus those begun since. For a drafter, its requests for texts."""
        told = (self.health and self.health.texts) or 0
        return max(told + self.begun, self.beginning)

    @property
    def waiting(self) -> int:
        """Requests that wait for a pass."""
        return (self.health and self.health.waiting) or 0

    @property
    def queue(self) -> int:
        return self.texts + self.waiting

    @property
    def link(self) -> float:
        """The round trip."""
        return min(self.links, default=0.0)

    @property
    def queue_time(self) -> float:
        """See `Candidate`. For a drafter, its requests' times stand for pass times."""
        if self.info is not None and self.info.pass_times:
            return queue_time(self.link, self.info.pass_times, max(1, self.info.rows), self.texts, self.waiting)
        known = [quantile(self.latencies, 0.5)] if self.latencies else []
        return queue_time(self.link, known, 1, self.texts, self.waiting)

    @property
    def work(self) -> float:
        """See `Candidate`. Lengths are unknown: texts are counted."""
        return float(self.texts)

    @property
    def deadline(self) -> float:
        """See `Candidate`. Requests have none."""
        return math.inf

    @property
    def reachable(self) -> bool:
        """Whether the node continues its sessions."""
        return self.status in ("ready", "overloaded", "draining")

    def answered(self, seconds: float) -> None:
        """Note that the node began to reply after this time."""
        self.in_a_row = 0
        self.latencies.append(seconds)

    def failed(self, now: float) -> None:
        """Note a request without reply: the node gets no new texts for a while."""
        self.failures += 1
        self.in_a_row += 1
        self.out_until = now + min(_FIRST_OUT * 2.0 ** min(self.in_a_row - 1, 10), _LONGEST_OUT)


_log = logging.getLogger("gateway.router")
_BAD = ("away", "refused", "failed", "verifier_away", "model_mismatch")


class Fleet:
    """The nodes by URL."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self.clock = clock
        self._nodes: dict[str, Node] = {}
        self._texts: dict[str, tuple[object, object]] = {}  # by model: what defines its texts
        self.on_join: Callable[[Node], object] = lambda node: None
        self.on_leave: Callable[[Node], object] = lambda node: None

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in the order in which they came."""
        return [*self._nodes.values()]

    def __contains__(self, node: Node) -> bool:
        return self._nodes.get(node.name) is node

    def join(self, spec: NodeSpec, ttl: float | None = None) -> Node:
        """Take a node in, or note that it is still there. `ttl`: seconds after which it leaves unless it reports again;
        None: it stays."""
        expires = None if ttl is None else self.clock() + ttl
        node = self._nodes.get(spec.url)
        if node is None:
            node = self._nodes[spec.url] = Node(spec, expires)
            self.on_join(node)
        else:
            node.spec = spec
            node.expires = None if node.expires is None else expires  # one that was listed stays
        return node

    def leave(self, url: str, why: str) -> bool:
        """Take a node out. Returns whether there was one."""
        node = self._nodes.pop(url, None)
        if node is not None:
            _log.info("the node %s has left: %s", url, why)
            self.on_leave(node)
        return node is not None

    def expire(self) -> None:
        """Take out the nodes that have not reported for too long."""
        now = self.clock()
        for node in self.nodes:
            if node.expires is not None and node.expires < now:
                self.leave(node.name, "it has not reported for too long")

    def found(self, node: Node, health: HealthResponse, info: ModelInfo | None) -> None:
        """Note the result of a probe. `info`: of a verifier that is ready, or was."""
        status: Status = "overloaded" if health.status == "ready" and health.overloaded else health.status
        node.progress = health.progress
        node.pace.note(self.clock(), health.generated_tokens if health.status == "ready" else None)
        if health.status == "ready":
            node.health, node.info, node.begun = health, info, 0
            node.model, node.kind = health.model or "", VERIFIER if health.identity else DRAFTER
            refusal = self._refusal(node)
            self._set(node, "refused" if refusal else status, refusal)
        else:
            self._set(node, status, health.reason or _WORDS.get(status, ""))

    def away(self, node: Node, why: str, status: Status = "away") -> None:
        """Note that a node gives no answer, or an invalid one."""
        node.pace.note(self.clock(), None)
        self._set(node, status, why)

    @property
    def models(self) -> list[str]:
        """The models that nodes serve, those that are away included."""
        return [*dict.fromkeys(each.model for each in self.nodes if each.model and each.status != "refused")]

    def has_model(self, name: str) -> bool:
        """Whether a node serves a model of this name, or was given for it."""
        return any(name in (each.model, each.spec.model) for each in self._nodes.values())

    def having(self, model: str | None, openai: bool) -> list[Node]:
        """The nodes that a request can go to, whether or not they take new texts.

        `model`: named by the request; None: none, so only one model may be served.
        `openai`: whether it is for OpenAI's interface or Anthropic's, which drafters have, too. They come first,
            since they write faster.

        Raises UnknownModel, and the error that says why there is none.
        """
        served = self.models
        if model is None and len(served) > 1:
            raise UnknownModel(
                f"several models are served here, and the request names none: {', '.join(served)}. Name one in the "
                "field model, or put /models/NAME before the path"
            )
        if model is not None and model not in served and served:
            which = f"{', '.join(served)} {'is' if len(served) == 1 else 'are'} served here"
            raise UnknownModel(f"no node serves {model[:100]!r}: {which}")
        of_model = [each for each in self.nodes if model is None or each.model == model]
        usable = [each for each in of_model if each.reachable and (openai or each.kind == VERIFIER)]
        drafters = [each for each in usable if each.kind == DRAFTER]
        if usable:
            return drafters or usable
        raise self._nobody(of_model or self.nodes, openai)  # of those that were never ready, the models are unknown

    def taking(self, nodes: Iterable[Node]) -> list[Node]:
        """Those of `nodes` that take new texts, without the overloaded ones if others are left."""
        now = self.clock()
        taking = [each for each in nodes if each.status in ("ready", "overloaded") and each.out_until <= now]
        return [each for each in taking if each.status == "ready"] or taking

    def has_another(self, node: Node) -> bool:
        """Whether another node can go on with the requests of this one."""
        return any(
            each is not node and each.reachable and (each.model, each.kind) == (node.model, node.kind)
            for each in self.nodes
        )

    def _nobody(self, nodes: list[Node], openai: bool) -> SpecPairError:
        """The error of a request that no node can take."""
        if not nodes:
            return BadGateway("this router has no node: register one, or name it with --node")
        loading = [each for each in nodes if each.status == "loading"]
        said = "; ".join(f"{each.name}: {each.why or each.status}" for each in nodes)
        if loading:
            known = [each.progress for each in loading if each.progress is not None]
            return ModelLoading(f"no node is ready yet: {said}", **({"progress": max(known)} if known else {}))
        if all(each.status == "draining" for each in nodes):
            return ShuttingDown(f"no node takes new texts: {said}")
        if any(each.reachable for each in nodes) and not openai:
            return BadGateway(f"no verifier is behind this router, only drafters, which take OpenAI's requests: {said}")
        return BadGateway(f"no node is ready: {said}. Ask again when one is; /nodes shows them")

    def _refusal(self, node: Node) -> str:
        """Why a node that is ready gets no requests; empty: it gets them."""
        wanted = node.spec.model
        if not node.model:
            return "it does not report its model: give its key with --node-key"
        if wanted is not None and node.model != wanted:
            return f"it serves {node.model}, but is listed for {wanted}"
        texts, mine = self._texts.get(node.model, ("", None)), node.defines_texts
        others = (each for each in self.nodes if each is not node and each.model == node.model and each.reachable)
        other = next((each for each in others if _alike(each.defines_texts, texts)), None)
        if other is None or _alike(mine, texts):
            known = ("", None) if other is None else texts
            self._texts[node.model] = mine[0] or known[0], mine[1] or known[1]
            return ""
        return (
            f"it serves {node.model} with another vocabulary, other weights or another way to sample than {other.name}"
        )

    def _set(self, node: Node, status: Status, why: str) -> None:
        before = node.status, node.why
        node.status, node.why = status, why
        if before == (status, why):
            return
        if status in _BAD:
            _log.warning("the node %s gets no texts (%s): %s", node.name, status, why)
        elif status != before[0] and {status, before[0]} != {"ready", "overloaded"}:
            _log.info("the node %s is %s%s", node.name, status, f": {node.model}" if status == "ready" else "")


def _alike(one: tuple[object, object], other: tuple[object, object]) -> bool:
    """Whether all known properties are equal."""
    return all(left == right for left, right in zip(one, other, strict=True) if left and right)


_WORDS = {
    "loading": "it loads its model",
    "draining": "it is being stopped",
    "verifier_away": "its verifier is away",
    "model_mismatch": "its verifier serves another model",
}
