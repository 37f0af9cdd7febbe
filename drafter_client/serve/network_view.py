"""What is known of the network as one message: pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drafter_client.http.addresses import VerifierAddress
from drafter_client.serve.messages import Network, NetworkLink, NetworkNode, NodeStatus
from gateway.router.messages import NodeInfo
from specpair.numbers import milliseconds
from specpair.protocol.service_responses import HealthResponse, ModelInfo

DRAFTER = "drafter"  # the name of this service among the nodes


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


@dataclass(frozen=True, slots=True)
class Behind:
    """What is known of one address. `seen`: None: it was not looked at yet."""

    address: VerifierAddress
    seen: Seen | None
    untaken: str  # why the pair gives it no new text; empty: it does
    own_texts: int  # of this service that are under way there


class Done(NamedTuple):
    """What a node says that it has done since its start."""

    at: float  # when it said so, in seconds
    tokens: int
    pass_seconds: float | None  # None: it does not say


class NodePace(NamedTuple):
    """What a node did between two looks. None: it is not known."""

    tokens_per_second: float | None = None
    utilisation: float | None = None


@dataclass(slots=True)
class NodePaces:
    """How busy nodes are, from what they say that they have done: by name."""

    _last: dict[str, Done] = field(default_factory=dict)
    _paces: dict[str, NodePace] = field(default_factory=dict)

    def note(self, name: str, done: Done | None) -> None:
        """Note what a node told; None: it told nothing."""
        before = self._last.get(name)
        if done is None:
            self._last.pop(name, None)
            self._paces.pop(name, None)
        elif before is None or done.tokens < before.tokens:  # it was started anew
            self._last[name] = done
            self._paces.pop(name, None)
        elif done.at > before.at:  # else a router has not looked since
            self._last[name] = done
            self._paces[name] = _pace(before, done)

    def of(self, name: str) -> NodePace:
        """The pace between the last two notes."""
        return self._paces.get(name, NodePace())


def _pace(before: Done, now: Done) -> NodePace:
    took = now.at - before.at
    busy = None
    if before.pass_seconds is not None and now.pass_seconds is not None:
        busy = round(min(1.0, max(0.0, now.pass_seconds - before.pass_seconds) / took), 3)
    return NodePace(round((now.tokens - before.tokens) / took, 2), busy)


def done(address: VerifierAddress, seen: Seen) -> Iterator[tuple[str, Done | None]]:
    """What the nodes that a look has found say that they have done, by name."""
    if not seen.router:
        told = seen.health
        yield str(address), None if told is None else _done(seen.at, told.generated_tokens, told.pass_seconds)
    for each in seen.nodes or ():
        at = None if each.looked_ago is None or not _there(each) else seen.at - each.looked_ago
        yield each.url, None if at is None else _done(at, each.generated_tokens, each.pass_seconds)


def _done(at: float, tokens: int | None, pass_seconds: float | None) -> Done | None:
    return None if tokens is None else Done(at, tokens, pass_seconds)


def _there(node: NodeInfo) -> bool:
    return node.status in ("ready", "overloaded", "draining")


def network(
    drafter: NetworkNode,
    behind: Sequence[Behind],
    paces: NodePaces,
    now: float,
    generated_tokens: int,
    token_price: float | None,
) -> Network:
    """All nodes and links.

    `now`: in seconds of the clock of the looks.
    `generated_tokens`: of the texts of this service.
    `token_price`: of a million tokens of a verifier that does not tell its own.
    """
    nodes, links, paid = {drafter.name: drafter}, list[NetworkLink](), list[tuple[float, int]]()
    for each in behind:
        name, seen = str(each.address), each.seen
        nodes[name] = _node(name, each, paces, token_price)
        links.append(_link(DRAFTER, name, seen, now))
        if seen is None:
            continue
        if not seen.router and token_price is not None:
            paid.append((token_price, (seen.health and seen.health.generated_tokens) or 0))
        for node in seen.nodes or ():
            links.append(_link_of_router(name, node, now - seen.at))
            told = _behind_router(node, each.own_texts, paces, token_price)
            if node.url in nodes:  # that of another router, too
                own_texts = (nodes[node.url].own_texts or 0) + (told.own_texts or 0)
                nodes[node.url] = nodes[node.url].model_copy(update={"own_texts": own_texts})
                continue
            nodes[node.url] = told
            if told.price_per_million_tokens is not None:
                paid.append((told.price_per_million_tokens, node.generated_tokens))
    price = _mean(paid)
    return Network(
        nodes=[*nodes.values()],
        links=links,
        generated_tokens=generated_tokens,
        price_per_million_tokens=price,
        cost=None if price is None else price * generated_tokens / 1e6,
    )


def _node(name: str, behind: Behind, paces: NodePaces, token_price: float | None) -> NetworkNode:
    seen = behind.seen
    if seen is None:
        return NetworkNode(name=name, kind="verifier", status="unknown", own_texts=behind.own_texts)
    health, info = seen.health, seen.info
    return NetworkNode(
        name=name,
        kind="router" if seen.router else "verifier",
        status=seen.status,
        why=seen.why or behind.untaken or None,
        progress=None if health is None else health.progress,
        model=(health and health.model) or (info and info.name) or None,
        slots=None if info is None else info.rows,
        texts=None if health is None else health.texts,
        waiting=None if health is None else health.waiting,
        own_texts=behind.own_texts,
        **paces.of(name)._asdict(),
        price_per_million_tokens=None if seen.router else token_price,
    )


def _behind_router(node: NodeInfo, own_texts: int, paces: NodePaces, token_price: float | None) -> NetworkNode:
    """`own_texts`: of this service that are at the router."""
    there = _there(node)
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
        **paces.of(node.url)._asdict(),
        price_per_million_tokens=token_price if node.hourly_price is None else node.price_per_million_tokens,
    )


def _link(near: str, far: str, seen: Seen | None, now: float) -> NetworkLink:
    if seen is None or seen.measured_at is None:
        return NetworkLink(near=near, far=far)
    age = _age(now - seen.measured_at)
    return NetworkLink(near=near, far=far, round_trip_ms=milliseconds(seen.round_trip), age_s=age)


def _link_of_router(router: str, node: NodeInfo, since: float) -> NetworkLink:
    """`since`: seconds since the router told it."""
    age = None if node.looked_ago is None else _age(node.looked_ago + since)
    return NetworkLink(near=router, far=node.url, round_trip_ms=node.round_trip_ms, age_s=age)


def _age(seconds: float) -> float:
    return round(max(0.0, seconds), 1)


def _mean(paid: Sequence[tuple[float, int]]) -> float | None:
    """The mean of prices over the tokens that they were paid for; while there are none, over the verifiers."""
    if not paid:
        return None
    tokens = sum(count for _, count in paid)
    if not tokens:
        return sum(price for price, _ in paid) / len(paid)
    return sum(price * count for price, count in paid) / tokens
