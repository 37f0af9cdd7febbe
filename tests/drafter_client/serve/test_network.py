"""What is told of the network: verifiers and a router that are real, one that is lost and comes back."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from backends.scripted import Script
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.http.client import VerifierClient
from drafter_client.serve.app import AppOptions, create_app
from drafter_client.serve.messages import Network
from drafter_client.serve.network import NodePace, NodeProbe, paced
from gateway.router.messages import NodeSpec
from tests.drafter_client.support import Held, serving
from tests.gateway.openai_api.conftest import served
from tests.gateway.router.stub_nodes import Answer, StubNode, link, refused, routing
from tests.waiting import until

SECONDS = 60  # of patience with a busy machine
TOY = DraftModel(Path("1"), "scripted")
TEXT = {"prompt": "def f(x):", "max_tokens": 60, "temperature": 0, "stream": True}


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
def told_by(pair: Pair) -> Iterator[tuple[httpx.Client, Told]]:
    """A client of a `drafter serve`, and the network that it tells."""
    options = Options(mode=Mode.REMOTE, draft_n=4)
    app = create_app(pair, options, texts=2, queue=8, how=AppOptions(network_every=0.02))
    with (
        served(app) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
        http.stream("GET", "/events", params={"of": "network"}) as stream,
    ):
        yield http, Told(stream.iter_lines())


def states(told: Network) -> list[str]:
    return [each.status for each in told.nodes[1:]]


def test_a_verifier_its_link_and_its_load() -> None:
    backend = Held(Script(seed=1, seconds_per_pass=0.005))
    with serving(backend) as verifier, told_by(Pair(verifier.url, TOY)) as (http, told):
        seen = told.until(lambda now: states(now) == ["ready"])
        assert [(each.name, each.kind) for each in seen.nodes] == [("drafter", "drafter"), (verifier.url, "verifier")]
        assert (seen.nodes[0].model, seen.nodes[0].texts) == ("scripted-1", 0)
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
        told.until(lambda now: now.generated_tokens == 60 and now.nodes[1].own_texts == 0)
        passes = httpx.get(f"{verifier.url}/health", trust_env=False).json()["pass_seconds"]
        assert passes >= 60 / 5 * 0.005, "a pass commits at most the four draft tokens and one more"


def test_a_verifier_that_is_lost_and_comes_back_and_others_without_a_router() -> None:
    with ExitStack() as stack:
        there, other = (stack.enter_context(serving()) for _ in range(2))
        away = stack.enter_context(link(there.url))
        pair = Pair([away.url, other.url], TOY, on_notice=lambda _: None)
        _, told = stack.enter_context(told_by(pair))
        seen = told.until(lambda now: states(now) == ["ready", "ready"])
        assert [each.far for each in seen.links] == [away.url, other.url]
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
        router = stack.enter_context(routing(specs=[NodeSpec(url) for url in urls]))
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
        (refused(403, "forbidden"), True, "the router does not show its verifiers to this drafter: forbidden here"),
        ((200, {"of": "another service"}), False, "nodes"),
    ],
)
def test_what_a_router_does_not_show(answer: Answer, kind: bool, why: str) -> None:
    node = StubNode()
    node.handler = lambda got, request: answer
    client = VerifierClient(node.url)
    seen = NodeProbe(client, iter(range(100)).__next__).look(["one", "two"])
    assert node.asked == ["GET /nodes?session=one&session=two"]
    assert (seen.status, seen.router, seen.round_trip) == ("ready", kind, 1)
    assert why in seen.why and bool(seen.why) == bool(why)
    client.close()
    node.close()


def test_how_busy_a_node_is_between_looks() -> None:
    first = paced(None, NodePace(1.0, 100, 5.0))
    assert (first.tokens_per_second, first.utilisation) == (None, None)
    second = paced(first, NodePace(3.0, 150, 6.0))
    assert (second.tokens_per_second, second.utilisation) == (25.0, 0.5)
    assert paced(second, NodePace(3.0, 150, 6.0)) == second, "the router has not looked since"
    third = paced(second, NodePace(4.0, 160, None))
    assert (third.tokens_per_second, third.utilisation) == (10.0, None)
    anew = paced(third, NodePace(5.0, 10, 0.1))
    assert (anew.tokens_per_second, anew.utilisation) == (None, None), "it was started anew"
    busy = paced(anew, NodePace(6.0, 11, 9.2))
    assert (busy.tokens_per_second, busy.utilisation) == (1.0, 1.0), "a pass that began before counts as a whole"
