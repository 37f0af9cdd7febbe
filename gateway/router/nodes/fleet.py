"""All nodes: who is there, who serves which model, and which of them can take a request. Used in the event loop."""

import logging
import time
from collections.abc import Callable, Iterable

from gateway.router.nodes.node import DRAFTER, VERIFIER, Node, NodeSpec, Status
from specpair.protocol.errors import BadGateway, ModelLoading, ShuttingDown, SpecPairError, UnknownModel
from specpair.protocol.service_responses import HealthResponse, ModelInfo

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
        """Note what a look at a node has found. `info`: of a verifier that is ready, or was."""
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
        """Note that a node does not answer, or not as a node does."""
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

        `model`: that it names; None: it names none, so one model has to be served.
        `openai`: whether it is for OpenAI's interface or Anthropic's, which drafters have, too. They are asked where
            they can be, since they write faster.

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
        """Those of `nodes` that take new texts: of these, those that are not overloaded, if there are any."""
        now = self.clock()
        taking = [each for each in nodes if each.takes_texts(now)]
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
            return BadGateway("no node is known to this router: register one, or name it with --node")
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
            return "it does not say what it serves: give its key with --node-key"
        if wanted is not None and node.model != wanted:
            return f"it serves {node.model}, and it was given for {wanted}"
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
    """Whether what is known of both is the same."""
    return all(left == right for left, right in zip(one, other, strict=True) if left and right)


_WORDS = {
    "loading": "it loads its model",
    "draining": "it is being stopped",
    "verifier_away": "its verifier is away",
    "model_mismatch": "its verifier serves another model",
}
