"""What is known of the network as one message: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drafter_client.http.addresses import Address
from drafter_client.serve.network.look import Seen
from drafter_client.serve.network.messages import Network, NetworkLink, NetworkNode
from specpair.protocol.times import milliseconds
from specpair.router.messages import NodeInfo

DRAFTER = "drafter"  # the name of this service among the nodes


@dataclass(frozen=True, slots=True)
class Behind:
    """What is known of one address. `seen`: None: it was not looked at yet."""

    address: Address
    seen: Seen | None
    untaken: str  # why the pair gives it no new text; empty: it does
    own_texts: int  # of this service that are under way there


@dataclass(slots=True)
class Rates:
    """How fast nodes generate, from the tokens that they tell: by name."""

    _last: dict[str, tuple[float, int]] = field(default_factory=dict)  # when, and tokens since their start
    _rates: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, at: float, tokens: int | None) -> None:
        """Note what a node told. `at`: in seconds; `tokens`: None: it does not tell."""
        before = self._last.pop(name, None)
        self._rates.pop(name, None)
        if tokens is None:
            return
        self._last[name] = at, tokens
        if before is not None and at > before[0] and tokens >= before[1]:  # else it was started anew
            self._rates[name] = (tokens - before[1]) / (at - before[0])

    def of(self, name: str) -> float | None:
        """Tokens a second between the last two notes; None: they do not say."""
        rate = self._rates.get(name)
        return None if rate is None else round(rate, 2)


def network(
    drafter: NetworkNode,
    behind: Sequence[Behind],
    rates: Rates,
    now: float,
    generated_tokens: int,
    token_price: float | None,
) -> Network:
    """All nodes and links.

    `now`: in seconds of the clock of the looks.
    `generated_tokens`: of the texts of this service.
    `token_price`: of a million tokens of a verifier that does not tell its own.
    """
    nodes, links, paid = [drafter], list[NetworkLink](), dict[str, tuple[float, int]]()
    for each in behind:
        name, seen = str(each.address), each.seen
        nodes.append(_node(name, each, rates, token_price))
        links.append(_link(DRAFTER, name, seen, now))
        if seen is None:
            continue
        if not seen.router and token_price is not None:
            paid[name] = token_price, (seen.health and seen.health.generated_tokens) or 0
        for node in seen.nodes or ():
            nodes.append(_behind_router(node, each.own_texts, rates, token_price))
            age = None if node.looked_ago is None else node.looked_ago + now - seen.at
            links.append(NetworkLink(near=name, far=node.url, round_trip_ms=node.round_trip_ms, age_s=_age(age)))
            if (price := nodes[-1].price_per_million_tokens) is not None:
                paid[node.url] = price, node.generated_tokens
    price = _mean(paid)
    return Network(
        nodes=[*{each.name: each for each in nodes}.values()],  # two routers may know the same node
        links=links,
        generated_tokens=generated_tokens,
        price_per_million_tokens=price,
        cost=None if price is None else price * generated_tokens / 1e6,
    )


def _node(name: str, behind: Behind, rates: Rates, token_price: float | None) -> NetworkNode:
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
        tokens_per_second=rates.of(name),
        price_per_million_tokens=None if seen.router else token_price,
    )


def _behind_router(node: NodeInfo, own_texts: int, rates: Rates, token_price: float | None) -> NetworkNode:
    """`own_texts`: of this service that are at the router."""
    there = node.status in ("ready", "overloaded", "draining")
    price = node.price_per_million_tokens
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
        tokens_per_second=rates.of(node.url) if there else None,
        price_per_million_tokens=token_price if price is None else price,
    )


def _link(near: str, far: str, seen: Seen | None, now: float) -> NetworkLink:
    if seen is None or seen.measured_at is None:
        return NetworkLink(near=near, far=far)
    age = _age(now - seen.measured_at)
    return NetworkLink(near=near, far=far, round_trip_ms=milliseconds(seen.round_trip), age_s=age)


def _age(seconds: float | None) -> float | None:
    return None if seconds is None else round(max(0.0, seconds), 1)


def _mean(paid: Mapping[str, tuple[float, int]]) -> float | None:
    """The mean of prices over the tokens that they were paid for; while there are none, over the verifiers."""
    if not paid:
        return None
    tokens = sum(count for _, count in paid.values())
    if not tokens:
        return sum(price for price, _ in paid.values()) / len(paid)
    return sum(price * count for price, count in paid.values()) / tokens
