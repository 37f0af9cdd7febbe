"""What is told of the network: verifiers and a router that are real, one that is lost and comes back, prices."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.serve.app import AppOptions, create_app
from drafter_client.serve.messages import Network, NetworkNode
from drafter_client.serve.network import Looking
from drafter_client.serve.network_view import Behind, Done, NodePaces, Seen, network
from gateway.router.messages import NodeInfo, NodeSpec
from specpair.protocol.service_responses import HealthResponse
from tests.drafter_client.support import Held, serving
from tests.gateway.openai_api.conftest import served
from tests.gateway.router.stub_nodes import Answer, StubNode, link, refused, routing
from tests.waiting import until

SECONDS = 60  # of patience with a busy machine
TOY = DraftModel(Path("1"), "scripted")
TEXT = {"prompt": "def f(x):", "max_tokens": 60, "temperature": 0, "stream": True}
OWN = NetworkNode(name="drafter", kind="drafter", status="ready")


class Told:
    """The network as a service tells it."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def until(self, condition: Callable[[Network], bool]) -> Network:
        """The next message for which it holds."""
        latest = time.monotonic() + SECONDS
        for line in self._lines:
            if line.startswith("data: "):
                assert time.monotonic() < latest, line
                told = Network.model_validate_json(line[6:])
                if condition(told):
                    return told
        raise AssertionError("the stream has ended")


@contextmanager
def told_by(pair: Pair, token_price: float | None = None) -> Iterator[tuple[httpx.Client, Told]]:
    """A client of a `drafter serve`, and the network that it tells."""
    options = Options(mode=Mode.REMOTE, draft_n=4)
    app = create_app(pair, options, texts=2, queue=8, how=AppOptions(network_every=0.02, token_price=token_price))
    with (
        served(app) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
        http.stream("GET", "/events", params={"of": "network"}) as stream,
    ):
        yield http, Told(stream.iter_lines())


def states(told: Network) -> list[str]:
    return [each.status for each in told.nodes[1:]]


def test_a_verifier_its_link_its_load_and_what_its_texts_cost() -> None:
    backend = Held(Script(seed=1, seconds_per_pass=0.005))
    with serving(backend) as verifier, told_by(Pair(verifier.url, TOY), token_price=2.5) as (http, told):
        seen = told.until(lambda now: states(now) == ["ready"])
        assert [(each.name, each.kind) for each in seen.nodes] == [("drafter", "drafter"), (verifier.url, "verifier")]
        assert (seen.nodes[0].model, seen.nodes[0].texts, seen.cost) == ("scripted-1", 0, 0.0)
        node, (between,) = seen.nodes[1], seen.links
        assert (node.model, node.slots, node.texts, node.own_texts) == ("scripted-1", backend.slots, 0, 0)
        told.until(lambda now: now.nodes[1].utilisation == 0.0 and now.nodes[1].tokens_per_second == 0.0)
        assert (between.near, between.far) == ("drafter", verifier.url)
        assert between.round_trip_ms is not None and between.round_trip_ms > 0 and between.age_s is not None
        backend.go(30)
        with http.stream("POST", "/v1/completions", json=TEXT) as text:
            seen = told.until(lambda now: now.nodes[1].own_texts == 1)
            assert seen.nodes[0].texts == 1
            backend.go()
            text.read()
        seen = told.until(lambda now: now.generated_tokens == 60 and now.nodes[1].own_texts == 0)
        passes = httpx.get(f"{verifier.url}/health", trust_env=False).json()["pass_seconds"]
        assert passes >= 60 / 5 * 0.005, "a pass commits at most the four draft tokens and one more"
        assert seen.price_per_million_tokens == 2.5 and seen.cost == pytest.approx(150e-6)


def test_a_verifier_that_is_lost_and_comes_back_and_others_without_a_router() -> None:
    with ExitStack() as stack:
        there, other = (stack.enter_context(serving()) for _ in range(2))
        away = stack.enter_context(link(there.url))
        pair = Pair([away.url, other.url], TOY, on_notice=lambda _: None)
        _, told = stack.enter_context(told_by(pair))
        seen = told.until(lambda now: states(now) == ["ready", "ready"])
        assert [each.far for each in seen.links] == [away.url, other.url] and seen.price_per_million_tokens is None
        away.cut()
        seen = told.until(lambda now: states(now) == ["away", "ready"])
        assert seen.nodes[1].why is not None and "no verifier answers" in seen.nodes[1].why
        assert seen.nodes[1].texts is None and seen.links[0].round_trip_ms is not None
        with link(there.url, urlsplit(away.url).port or 0):
            told.until(lambda now: states(now) == ["ready", "ready"])


def test_the_verifiers_behind_a_router_and_which_has_the_text() -> None:
    with ExitStack() as stack:
        backends = [Held(Script(seed=1)) for _ in range(3)]
        urls = [stack.enter_context(serving(each)).url for each in backends]
        specs = [NodeSpec(url, hourly_price=price) for url, price in zip(urls, (3.0, None, None), strict=True)]
        router = stack.enter_context(routing(specs=specs))
        router.until_seen("ready", "ready", "ready")
        address = str(router.http.base_url)
        http, told = stack.enter_context(told_by(Pair(address, TOY)))
        seen = told.until(lambda now: states(now) == ["ready"] * 4 and all(each.round_trip_ms for each in now.links))
        assert [each.kind for each in seen.nodes] == ["drafter", "router", "verifier", "verifier", "verifier"]
        name = seen.nodes[1].name
        assert [(each.near, each.far) for each in seen.links] == [("drafter", name), *((name, url) for url in urls)]
        assert [each.slots for each in seen.nodes[2:]] == [backends[0].slots] * 3
        for each in backends:
            each.go(30)
        with http.stream("POST", "/v1/completions", json=TEXT) as text:
            seen = told.until(lambda now: sum(each.own_texts or 0 for each in now.nodes[2:]) == 1)
            assert seen.nodes[1].own_texts == 1
            for each in backends:
                each.go()
            text.read()


def test_nobody_looks_once_nobody_listens() -> None:
    def looks() -> bool:
        return any(each.name == "network" for each in threading.enumerate())

    with serving() as verifier:
        app = create_app(Pair(verifier.url, TOY), Options(), texts=1, queue=1)
        with served(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            assert not looks()
            with http.stream("GET", "/events", params={"of": "network"}) as stream:
                Told(stream.iter_lines()).until(lambda now: states(now) == ["ready"])
                assert looks()
            until(lambda: not looks(), "the looks go on")
            refusal = http.get("/events", params={"of": "weather"})
            assert (refusal.status_code, refusal.json()["error"]["param"]) == (422, "of")


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        ((200, {"nodes": []}), True, ""),
        (refused(404, "not_found"), False, ""),
        (refused(403, "forbidden"), True, "the verifiers behind it are not shown to this drafter: forbidden here"),
        ((200, {"of": "another service"}), False, "nodes"),
    ],
)
def test_what_a_router_does_not_show(answer: Answer, kind: bool, why: str) -> None:
    node = StubNode()
    node.handler = lambda got, request: answer
    client = VerifierClient(node.url)
    seen = Looking(client, iter(range(100)).__next__).look(["one", "two"])
    assert node.asked == ["GET /nodes?session=one&session=two"]
    assert (seen.status, seen.router, seen.round_trip) == ("ready", kind, 1)
    assert why in seen.why and bool(seen.why) == bool(why)
    client.close()
    node.close()


def behind(seen: Seen | None, untaken: str = "") -> Behind:
    return Behind(VerifierAddress("http://v:1"), seen, untaken, 0)


def node(url: str, price: float | None, tokens: int) -> NodeInfo:
    body = {
        "url": url,
        "status": "ready",
        "weight": 1.0,
        "texts": 0,
        "waiting": 0,
        "in_flight": 0,
        "requests": 0,
        "failures": 0,
        "generated_tokens": tokens,
        "hourly_price": None if price is None else 2.0,
        "price_per_million_tokens": price or None,
        "looked_ago": 0.5,
    }
    return NodeInfo.model_validate_json(json.dumps(body))


def test_prices_of_a_router_weigh_by_tokens_and_stand_before_the_drafters_own() -> None:
    nodes = [node("a", 4.0, 300), node("b", 8.0, 100), node("c", None, 600)]
    seen = Seen(10.0, "ready", router=True, nodes=nodes)
    told = network(OWN, [behind(seen)], NodePaces(), 12.0, 1_000_000, None)
    assert (told.price_per_million_tokens, told.cost) == (5.0, 5.0)
    assert [each.price_per_million_tokens for each in told.nodes] == [None, None, 4.0, 8.0, None]
    assert [each.age_s for each in told.links] == [None, 2.5, 2.5, 2.5], "the looks of a router age, too"
    own = network(OWN, [behind(seen)], NodePaces(), 12.0, 1_000_000, 1.0)
    assert own.price_per_million_tokens == pytest.approx((4.0 * 300 + 8.0 * 100 + 1.0 * 600) / 1000)
    unknown = Seen(10.0, "ready", router=True, nodes=[node("a", 0.0, 0)])
    told = network(OWN, [behind(unknown)], NodePaces(), 11.0, 0, 1.0)
    assert told.price_per_million_tokens is told.cost is None, "it has a price, and no tokens yet"
    free = network(
        OWN, [behind(Seen(10.0, "ready", router=True, nodes=[node("a", 4.0, 0)]))], NodePaces(), 11.0, 0, None
    )
    assert (free.price_per_million_tokens, free.cost) == (4.0, 0.0)


def test_what_is_not_known_is_not_told() -> None:
    told = network(OWN, [behind(None)], NodePaces(), 1.0, 5, None)
    assert (told.nodes[1].status, told.links[0].round_trip_ms, told.links[0].age_s) == ("unknown", None, None)
    assert told.price_per_million_tokens is told.cost is None
    seen = Seen(0.0, "ready", health=HealthResponse(status="ready", texts=2), round_trip=0.0015, measured_at=0.0)
    told = network(OWN, [behind(seen, "it serves another model")], NodePaces(), 4.0, 5, None)
    assert (told.nodes[1].why, told.nodes[1].texts) == ("it serves another model", 2)
    assert (told.links[0].round_trip_ms, told.links[0].age_s) == (1.5, 4.0)


PRICES = st.none() | st.floats(0.0, 1e4)
ROUTERS = st.lists(st.tuples(st.sampled_from("abc"), PRICES, st.integers(0, 10**9)), max_size=4)


@given(ROUTERS, ROUTERS, PRICES, st.integers(0, 10**9))
def test_links_join_nodes_that_are_told_once_and_the_mean_price_is_between_theirs(
    one: list[Any], other: list[Any], token_price: float | None, generated: int
) -> None:
    routers = [
        Behind(
            VerifierAddress(f"http://r:{port}"),
            Seen(1.0, "ready", router=True, nodes=[node(*each) for each in nodes]),
            "",
            0,
        )
        for port, nodes in enumerate((one, other))
    ]
    told = network(OWN, routers, NodePaces(), 2.0, generated, token_price)
    names = [each.name for each in told.nodes]
    assert len({*names}) == len(names) and names[0] == "drafter"
    assert all({each.near, each.far} <= {*names} for each in told.links)
    prices = [each.price_per_million_tokens for each in told.nodes if each.price_per_million_tokens is not None]
    if told.price_per_million_tokens is None or told.cost is None:
        assert prices == [] and told.cost is told.price_per_million_tokens is None
    else:
        assert min(prices) * (1 - 1e-9) <= told.price_per_million_tokens <= max(prices) * (1 + 1e-9)
        assert told.cost == pytest.approx(told.price_per_million_tokens * generated / 1e6)


def test_how_busy_a_node_is_between_looks() -> None:
    paces = NodePaces()
    paces.note("a", Done(1.0, 100, 5.0))
    assert paces.of("a") == (None, None)
    paces.note("a", Done(3.0, 150, 6.0))
    assert paces.of("a") == (25.0, 0.5)
    paces.note("a", Done(3.0, 150, 6.0))
    assert paces.of("a") == (25.0, 0.5), "the router has not looked since"
    paces.note("a", Done(4.0, 160, None))
    assert paces.of("a") == (10.0, None)
    paces.note("a", Done(5.0, 10, 0.1))
    assert paces.of("a") == (None, None), "it was started anew"
    paces.note("a", None)
    paces.note("a", Done(6.0, 20, 0.2))
    assert paces.of("a") == (None, None)
    paces.note("a", Done(7.0, 21, 9.2))
    assert paces.of("a") == (1.0, 1.0), "a pass that began before counts as a whole"
