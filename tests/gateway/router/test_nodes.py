"""Which nodes are taken, and for which model; who registers, and who leaves."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from pydantic import SecretStr

from drafter_client import Pair
from drafter_client.http.outages import Outage
from gateway.router.messages import NodeSpec
from gateway.router.nodes import Fleet, TokenPace
from gateway.router.requests import prefixes, routed, routing_fields
from specpair.protocol.errors import BadGateway, ModelLoading, SpecPairError
from specpair.protocol.service_responses import HealthResponse
from tests.drafter_client.http.fake_transports import model_info
from tests.gateway.router.stub_nodes import Router, StubNode, fleet, routing
from tests.waiting import until


@pytest.fixture
def nodes() -> Iterator[list[StubNode]]:
    """Two of one model, one of another."""
    made = [StubNode(), StubNode(), StubNode("other", "b-1")]
    yield made
    for each in made:
        each.close()


def error(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


def test_requests_go_by_model_name(nodes: list[StubNode]) -> None:
    with routing(*nodes) as router:
        http = router.http
        for model, urls in (("toy", {nodes[0].url, nodes[1].url}), ("other", {nodes[2].url})):
            for number in range(8):
                body: dict[str, Any] = {"prompt": "x", "n": [{"model": "decoy"}], "model": model}
                assert http.post("/v1/completions", json=body).json()["node"] in urls
                named = http.post(f"/models/{model}/prefill", json={}, headers={"X-Session-Id": f"{model}-{number}"})
                assert named.json() == {"node": named.json()["node"], "path": "/prefill"}
                assert named.json()["node"] in urls
            assert http.get(f"/v1/models/{model}").json()["node"] in urls
            assert http.get(f"/models/{model}/health").json()["model"] == model
        assert http.get("/v1/models").json()["data"] == [{"id": "toy"}, {"id": "other"}]
        for path, body in (("/v1/completions", {"model": "toyy"}), ("/v1/completions", {}), ("/prefill", {})):
            refusal = http.post(path, json=body)
            assert error(refusal) == (404, "model_not_found")
            assert "toy, other" in refusal.json()["error"]["message"]
        assert error(http.get("/models/none/model")) == (404, "model_not_found")
        assert "model" not in http.get("/health").json()


def test_a_drafter_waits_for_a_node_and_says_why_there_is_none() -> None:
    told: list[Outage] = []
    with fleet(1) as router:
        router.nodes[0].close()
        router.until_seen("away")
        with pytest.raises(BadGateway, match=r"waited \d+ s for the verifier.*no node is ready"):
            Pair(str(router.http.base_url), patience=0.3, on_outage=told.append)
    assert all("no node is ready" in each.why for each in told) and told


def test_a_node_with_another_vocabulary_or_model_is_not_taken(nodes: list[StubNode]) -> None:
    first, second, _ = nodes
    second.identity = "b-1"
    with routing(first, second, specs=[NodeSpec(first.url), NodeSpec(second.url, model="toy")]) as router:
        router.until_seen("ready", "refused")
        why = router.http.get("/nodes").json()["nodes"][1]["why"]
        assert "another vocabulary" in why and first.url in why
        second.identity = "a-2"  # only what else it serves differs
        router.until_seen("ready", "ready")
        second.model = "other"
        router.until_seen("ready", "refused")
        assert "is listed for toy" in router.http.get("/nodes").json()["nodes"][1]["why"]
        second.model, second.identity = "toy", "b-1"
        first.close()
        router.until_seen("away", "ready")  # an upgrade of all


def test_nodes_are_compared_by_their_vocabulary_whatever_they_call_themselves() -> None:
    found = Fleet(lambda: 0.0)
    one, same, other, drafter, strange, silent = (found.join(NodeSpec(f"http://{number}")) for number in range(6))
    told = model_info(name="toy")
    changed = model_info(name="toy", vocabulary=replace(told.vocabulary, ordinary="0" * 12))
    for node, health, info in (
        (one, ready(), told),
        (same, ready(identity="a-2"), told),
        (other, ready(), changed),
        (drafter, ready(identity=None, target_identity="a-7"), None),
        (strange, ready(identity=None, target_identity="b-1"), None),
        (silent, ready(identity=None), None),
    ):
        found.found(node, health, info)
    assert [each.status for each in found.nodes] == ["ready", "ready", "refused", "ready", "refused", "ready"]
    for node in (one, same, drafter, silent):
        found.away(node, "nothing answers")
    found.found(strange, strange.health or LOADING, None)
    found.found(other, ready(identity="b-2"), changed)
    assert (strange.status, other.status) == ("ready", "ready"), "they are of one model, and the others have left"


def test_the_nodes_of_one_model_and_of_named_sessions(nodes: list[StubNode]) -> None:
    with routing(*nodes) as router:
        http = router.http
        for number in range(4):
            http.post("/models/toy/prefill", json={}, headers={"X-Session-Id": f"s{number}"})
        told = http.get("/models/toy/nodes", params={"session": ["s0", "s1", "s2", "s3", "unknown"]}).json()["nodes"]
        assert [each["url"] for each in told] == [nodes[0].url, nodes[1].url]
        assert [each["named_sessions"] for each in told] == [len(nodes[0].sessions), len(nodes[1].sessions)]
        assert all(each["looked_ago"] >= 0 and each["round_trip_ms"] > 0 for each in told)
        assert len(http.get("/nodes").json()["nodes"]) == 3
        assert all("named_sessions" not in each for each in http.get("/nodes").json()["nodes"])
        assert http.get("/models/none/nodes").json() == {"nodes": []}


REGISTER: dict[str, Any] = {"register_key": SecretStr("join"), "api_key": SecretStr("ours")}
JOIN = {"Authorization": "Bearer join"}


def test_nodes_register_report_and_leave(nodes: list[StubNode]) -> None:
    with routing(**REGISTER) as router:
        http = router.http
        assert error(http.get("/model")) == (502, "bad_gateway")
        wants, wrong = "wants its key", "that was sent is not"
        for key, said in (("", wants), ("join", wants), ("Bearer", wants), ("Bearer ours", wrong)):
            refusal = http.post("/nodes", json={"url": nodes[0].url}, headers={"Authorization": key})
            assert error(refusal) == (401, "unauthorized") and said in refusal.json()["error"]["message"]
        for body in ({}, {"url": "ftp://x"}, {"url": "http://u:p@x"}, {"url": "http://x", "weight": 0}, {"uri": "x"}):
            assert error(http.post("/nodes", json=body, headers=JOIN)) == (422, "invalid_request")
        assert "no key 'uri'; did you mean url?" in http.post("/nodes", json={"uri": "x"}, headers=JOIN).text
        joined = http.post("/nodes", json={"url": f"{nodes[0].url}/", "hourly_price": 2.5, "ttl": 60}, headers=JOIN)
        assert joined.json()["url"] == nodes[0].url and joined.json()["status"] == "unknown"
        router.until_seen("ready")
        http.post("/nodes", json={"url": nodes[0].url, "weight": 3.0, "ttl": 60}, headers=JOIN)
        (listed,) = http.get("/nodes").json()["nodes"]
        assert listed["weight"] == 3.0 and 50 < listed["leaves_in"] <= 60
        assert http.post("/nodes", json={"url": nodes[1].url, "ttl": 0.05}, headers=JOIN).status_code == 200
        router.until_seen("ready")  # it has not reported again
        gone = http.request("DELETE", "/nodes", params={"url": nodes[0].url}, headers=JOIN)
        assert gone.json() == {"url": nodes[0].url, "left": True}
        assert error(http.request("DELETE", "/nodes", params={"url": "http://x"}, headers=JOIN)) == (404, "not_found")
        assert http.get("/ready", headers={"Authorization": ""}).status_code == 503


def test_nobody_registers_without_a_key_for_it() -> None:
    with fleet(1) as router:
        refusal = router.http.post("/nodes", json={"url": "http://x"})
        assert error(refusal) == (403, "forbidden") and "--register-key" in refusal.json()["error"]["message"]


def test_a_node_that_is_killed_and_comes_back() -> None:
    with fleet(2) as router:
        lost = router.nodes[0]
        port = int(lost.url.rpartition(":")[2])
        lost.close()
        router.until_seen("away", "ready")
        assert {router.http.get("/model").status_code for _ in range(4)} == {200}
        back = StubNode(port=port)
        router.until_seen("ready", "ready")
        back.status, back.health = "failed", {"reason": "the engine has failed"}
        router.until_seen("failed", "ready")
        assert router.http.get("/nodes").json()["nodes"][0]["why"] == "the engine has failed"
        back.close()


def test_requests_leave_a_node_that_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a link that is cut: no connection breaks."""
    monkeypatch.setattr("gateway.router.watch.PATIENCE", 0.2)
    with fleet(2, policy="round_robin") as router, ThreadPoolExecutor(4) as threads:
        silent, other = router.nodes
        silent.going.clear()
        asking = [threads.submit(router.http.post, "/v1/completions", json={}) for _ in range(4)]
        assert {each.result(20).json()["node"] for each in asking} == {other.url}
        router.until_seen("away", "ready")
        silent.going.set()
        router.until_seen("ready", "ready")


def test_a_node_that_answers_no_look_is_there_while_anything_comes_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = True
    looks = []

    def silent(path: str) -> None:
        looks.append(path)
        answering.wait(20)

    monkeypatch.setattr("gateway.router.watch.PATIENCE", 0.05)
    monkeypatch.setattr("gateway.router.connections.Pool.heard_within", lambda pool, seconds: heard)
    answering = threading.Event()
    with fleet(2, policy="round_robin") as router, ThreadPoolExecutor(2) as threads:
        busy, other = router.nodes
        about, gate = busy.about, threading.Event()
        monkeypatch.setattr(busy, "about", lambda path: silent(path) if path == "/health" else about(path))
        busy.handler = lambda got, request: (gate.wait(20), (200, {"node": busy.url}))[1]
        asking = [threads.submit(router.http.post, "/v1/completions", json={}) for _ in range(2)]
        until(lambda: len(busy.got) == 1 and len(looks) > 4, "it is not looked at")
        assert router.states() == ["ready", "ready"]
        gate.set()
        assert {each.result(20).json()["node"] for each in asking} == {busy.url, other.url}
        heard = False
        router.until_seen("away", "ready")
        answering.set()


@pytest.mark.parametrize(
    ("told", "why"),
    [({"access": "unauthorized"}, "--node-key"), ({"status": 5}, "is it a node?"), ({"model": None}, "--node-key")],
)
def test_a_node_that_tells_too_little_is_refused(told: dict[str, Any], why: str) -> None:
    with fleet(1) as router:
        router.nodes[0].health = told
        router.until_seen("refused")
        assert why in router.http.get("/nodes").json()["nodes"][0]["why"]
        assert error(router.http.get("/model")) == (502, "bad_gateway")


def known(**states: HealthResponse | None) -> Fleet:
    """A fleet of nodes that have told this; None: nothing answers."""
    found = Fleet(lambda: 0.0)
    for name, health in states.items():
        node = found.join(NodeSpec(f"http://{name}"))
        if health is None:
            found.away(node, "nothing answers")
        else:
            found.found(node, health, model_info(name="toy") if health.identity else None)
    return found


def ready(**told: Any) -> HealthResponse:
    return HealthResponse(status="ready", model="toy", **{"identity": "a-1", **told})


LOADING, DRAINING = HealthResponse(status="loading", progress=0.5), HealthResponse(status="draining")


@pytest.mark.parametrize(
    ("states", "kind"),
    [
        ({}, BadGateway),
        ({"one": None}, BadGateway),
        ({"one": None, "two": LOADING}, ModelLoading),
        ({"one": ready(identity=None)}, BadGateway),
    ],
)
def test_the_error_says_why_there_is_no_node(
    states: dict[str, HealthResponse | None], kind: type[SpecPairError]
) -> None:
    with pytest.raises(kind) as raised:
        known(**states).having(None, openai=False)
    for name in states:
        assert f"http://{name}" in str(raised.value)
    if kind is ModelLoading:
        assert raised.value.details == {"progress": 0.5}


def test_who_takes_new_texts() -> None:
    now = 0.0
    found = known(one=ready(), two=ready(overloaded=True), three=DRAINING)
    found.clock = lambda: now
    one, two, _ = found.nodes
    assert found.taking(found.nodes) == [one]
    one.failed(now)
    assert found.taking(found.nodes) == [two], "rather an overloaded one than one that has just failed"
    now = 1.0
    assert found.taking(found.nodes) == [one]
    for _ in range(20):
        one.failed(now)
    now += 10.0
    assert found.taking(found.nodes) == [one], "the pause does not grow for ever"


def test_a_listed_node_stays_though_it_registers() -> None:
    now = 0.0
    found = Fleet(lambda: now)
    found.join(NodeSpec("http://listed"))
    found.join(NodeSpec("http://listed", weight=2.0), ttl=1.0)
    found.join(NodeSpec("http://registered"), ttl=1.0)
    now = 2.0
    found.expire()
    assert [(each.name, each.weight) for each in found.nodes] == [("http://listed", 2.0)]


def test_the_load_of_a_node() -> None:
    (node,) = known(one=ready(texts=3, waiting=2)).nodes
    node.begun = 2
    assert (node.texts, node.queue) == (5, 7)
    (drafter,) = known(one=ready(identity=None)).nodes
    drafter.beginning = 4
    assert drafter.texts == 4 and drafter.queue_time == 0.0
    drafter.answered(0.5)
    assert drafter.queue_time == pytest.approx(0.5 * 5)


def test_price_per_token() -> None:
    pace = TokenPace()
    assert pace.price(3.6) is None and pace.tokens_per_second is None
    pace.note(0.0, 1000)
    pace.note(10.0, 1500)
    pace.note(11.0, None)  # away: that is not paid, as nothing was there
    pace.note(20.0, 40)  # started again
    pace.note(30.0, 540)
    assert (pace.tokens, pace.seconds) == (1000, 20.0)
    assert pace.tokens_per_second == 50.0
    assert pace.price(3.6) == pytest.approx(20.0), "0.001 a second, 50 tokens a second"


MODELS = {"toy", "toy/", "acme/tiny", "acme/tiny/v2", "a b%2F", "模型"}


@pytest.mark.parametrize(
    ("path", "model", "rest"),
    [
        ("/models/toy/v1/completions", "toy", "/v1/completions"),
        ("/models/toy", "toy", "/"),
        ("/models/acme/tiny/model", "acme/tiny", "/model"),
        ("/models/acme%2Ftiny/model", "acme/tiny", "/model"),
        ("/models/%61cme%2ftiny/model/", "acme/tiny", "/model/"),
        ("/models/acme/tiny", "acme/tiny", "/"),
        ("/models/acme/tiny/v2/sessions/a%2Fb/stream", "acme/tiny/v2", "/sessions/a%2Fb/stream"),
        ("/models/acme/tiny%2Fv2/model", "acme/tiny/v2", "/model"),
        ("/models/acme/tiny/v3/model", "acme/tiny", "/v3/model"),
        ("/models/a%20b%252F/model", "a b%2F", "/model"),
        ("/models/%E6%A8%A1%E5%9E%8B/model", "模型", "/model"),
        ("/models/none/such/model", "none", "/such/model"),
        ("/models/none%2Fsuch/model", "none/such", "/model"),
        ("/models/" + "a/" * 9999 + "model", "a", "/" + "a/" * 9998 + "model"),
        ("/models//model", "", "/model"),
        ("/v1/models/acme/tiny/", "acme/tiny", "/v1/models/acme/tiny/"),
        ("/v1/models/acme%2Ftiny", "acme/tiny", "/v1/models/acme%2Ftiny"),
        ("/models/acme/tiny/v1/models/acme%2Ftiny", "acme/tiny", "/v1/models/acme%2Ftiny"),
    ],
)
def test_a_path_names_a_model_with_or_without_slashes(path: str, model: str, rest: str) -> None:
    what = routed(path.encode(), "", MODELS.__contains__)
    assert (what.model, what.target) == (model, rest.encode())
    assert what.path == unquote(rest).rstrip("/")


def test_prefixes_of_prompts() -> None:
    def of(**body: Any) -> tuple[str, ...]:
        return prefixes(json.dumps(body).encode())

    turn = [{"role": "system", "content": "s" * 600}, {"role": "user", "content": "first"}]
    first = of(messages=turn, session_id="a")
    second = of(session_id="b", messages=[*turn, {"role": "assistant", "content": "t" * 900}])
    assert len(first) == 2 and len(second) == 3
    assert second[-2:] == first, "the longest stands first"
    assert not {*first} & {*of(messages=[{"role": "system", "content": "s" * 99 + "t" * 600}])}
    assert of(prompt="short") == () == prefixes(b"no json") == prefixes(b"[]")
    assert routing_fields(b"no json").model is None and routing_fields(b"[]").model is None
    assert routing_fields(b'{"model": 5, "session_id": "x"}').session_id == "x"


def test_a_prompt_that_begins_alike_goes_to_the_same_node() -> None:
    for path, prompt in (("/v1/completions", "p" * 300), ("/prefill", "q" * 300), ("/generate", "r" * 300)):
        # Texts of the other prompts might load its node so that it is left.
        with fleet(3, policy="prefix_aware", look_every=60) as router:
            asked = [router.http.post(path, json={"prompt": prompt + end}) for end in ("", " and more")]
            assert len({each.json()["node"] for each in asked}) == 1, path


def test_a_prompt_that_names_an_earlier_text_goes_to_the_node_of_that_text() -> None:
    """Turns of a chat, each of which sends only what is new."""
    with fleet(3, policy="prefix_aware", look_every=0.02) as router:

        def asked(session: str, **body: Any) -> str:
            reply = router.http.post("/prefill", json=body, headers={"X-Session-Id": session}).json()
            # Its text would load the node so that it is left.
            until(lambda: not any(each["texts"] for each in router.http.get("/nodes").json()["nodes"]), "no look since")
            return str(reply["node"])

        first = asked("0", prompt="p" * 300)
        turns = [asked(f"{turn}", prompt_ids=[7], prefix={"session_id": f"{turn - 1}"}) for turn in range(1, 7)]
        assert {*turns} == {first}
        assert asked("8", prefix="no object")


def test_metrics_of_the_nodes(router: Router) -> None:
    router.http.post("/prefill", json={}, headers={"X-Session-Id": "s"})
    shown = router.http.get("/metrics").text
    url = router.nodes[0].url
    assert f'specpair_router_node_requests_total{{model_name="toy",node="{url}"}} 1.0' in shown
    assert f'specpair_router_node_ready{{model_name="toy",node="{url}"}} 1.0' in shown
    assert "specpair_router_sessions 1.0" in shown and 'quantile="0.95"' in shown
    assert 'specpair_router_dispatch_seconds_count{model_name="toy"} 1.0' in shown
    counted = 'specpair_http_requests_total{model_name="toy",route="/prefill",status="200"} 1.0'
    until(lambda: counted in router.http.get("/metrics").text, "it is not counted")  # which is after the reply


@pytest.fixture
def router() -> Iterator[Router]:
    with fleet(1) as made:
        yield made
