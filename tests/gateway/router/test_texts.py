"""Texts through a router in front of real verifiers and drafters: each is the target's own, whatever nodes do."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.serve.app import create_app as drafter_app
from gateway.router.messages import NodeRequest, NodeSpec, read_nodes
from gateway.router.registration import Registration, registration_of
from gateway.router.settings import from_flags
from specpair.__main__ import main
from specpair.command_line.setting_values import SettingsError
from tests.drafter_client.support import Verifier, plain, read, serving
from tests.gateway.openai_api.conftest import served
from tests.gateway.router.stub_nodes import Router, routing
from tests.waiting import until
from verifier_server.settings import Settings
from verifier_server.settings import from_flags as verifier_flags

PROMPT = "def f(x):"
TARGET = ScriptedBackend(Script(seed=1))
KEY = {"Authorization": "Bearer join"}
TEXTS = [
    Options(max_tokens=160, temperature=0.8 * (seed % 2), seed=seed, mode=(Mode.REMOTE, Mode.TARGET)[seed // 2 % 2])
    for seed in range(6)
]


@pytest.fixture(scope="module")
def verifiers() -> Iterator[list[Verifier]]:
    """Three of one model."""
    with ExitStack() as stack:
        slow = [ScriptedBackend(Script(seed=1, seconds_per_pass=0.001)) for _ in range(3)]
        yield [stack.enter_context(serving(each)) for each in slow]


@pytest.fixture
def router() -> Iterator[Router]:
    """A router that nodes register with."""
    with routing(register_key=SecretStr("join"), policy="round_robin") as made:
        yield made


def join(router: Router, url: str) -> None:
    """Have a node stand behind the router."""
    router.http.post("/nodes", json={"url": url, "ttl": None}, headers=KEY).raise_for_status()
    until(lambda: router.states()[-1] == "ready", "it is not taken")


def generated(verifier: Verifier) -> int:
    return verifier.service.gate.accounts.generated_tokens


def expected(options: Options) -> list[int]:
    return plain(TARGET, TARGET.vocabulary.encode(PROMPT), options.max_tokens, options.sampling)


def test_texts_go_on_elsewhere_when_a_node_leaves_and_use_one_that_joins(
    router: Router, verifiers: list[Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drafter_client.http.retries.CHECK_PAUSE", 0.01)
    first, second, third = verifiers
    before = [generated(each) for each in verifiers]
    join(router, first.url)
    join(router, second.url)
    all_begun, changed = threading.Barrier(len(TEXTS) + 1), threading.Event()

    def begun() -> None:
        all_begun.wait(60)
        assert changed.wait(60)

    url = str(router.http.base_url)
    with Pair(url, DraftModel(Path("1"), "scripted"), texts=len(TEXTS)) as pair:
        texts = [pair.generate(PROMPT, each) for each in TEXTS]
        with ThreadPoolExecutor(len(TEXTS)) as threads:
            reading = [threads.submit(read, text, 20, begun) for text in texts]
            all_begun.wait(60)
            had = [generated(each) for each in (first, second)]
            join(router, third.url)
            router.http.request("DELETE", "/nodes", params={"url": first.url}, headers=KEY).raise_for_status()
            changed.set()
            found = [each.result(60) for each in reading]
        assert found == [expected(each) for each in TEXTS]
        for each in TEXTS[:2]:  # those of the node that left may have ended by then, so the third may have had none
            assert read(pair.generate(PROMPT, each), 1, lambda: None) == expected(each)
        assert all(now > then for now, then in zip(had, before, strict=False)), "both had some of the texts"
        assert generated(third) > before[2], "the third is used, too"
    stats = router.http.get("/stats").json()["models"][0]
    assert stats["nodes"] == 2 and stats["latency_ms"]["p50"] > 0.0


def test_a_chat_whose_turns_go_to_other_verifiers(router: Router, verifiers: list[Verifier]) -> None:
    """They do not hold the text of the turn before, so these turns are sent whole in the end."""
    for each in verifiers[:2]:
        join(router, each.url)
    prompt = [*range(100)]
    with Pair(str(router.http.base_url), DraftModel(Path("1"), "scripted")) as pair:
        for options in TEXTS[1:4]:
            with pair.generate(prompt, options) as text:
                tokens = read(text, 1, lambda: None)
            assert tokens == plain(TARGET, prompt, options.max_tokens, options.sampling)
            prompt += tokens
    assert 'status="409"' in router.http.get("/metrics").text


def test_a_drafter_gets_openais_requests_while_it_is_registered(router: Router, verifiers: list[Verifier]) -> None:
    join(router, verifiers[0].url)
    pair = Pair(verifiers[1].url, DraftModel(Path("1"), "scripted"))
    registration = Registration(str(router.http.base_url), "join", NodeRequest(url="http://127.0.0.1:1"), every=0.02)
    ask = {"prompt": PROMPT, "max_tokens": 16, "temperature": 0}
    with served(drafter_app(pair, Options(), texts=1, queue=2, registration=registration)) as url:
        until(lambda: len(router.states()) == 2, "it has not registered")
        join(router, url)
        text = router.http.post("/v1/completions", json=ask).json()["choices"][0]["text"]
        listed = {each["url"]: each for each in router.http.get("/nodes").json()["nodes"]}
        assert (listed[url]["kind"], listed[url]["requests"]) == ("drafter", 1)
    until(lambda: "http://127.0.0.1:1" not in urls(router), "it has not said that it leaves")
    router.until_seen("ready", "away")
    assert router.http.post("/v1/completions", json=ask).json()["choices"][0]["text"] == text, "a verifier's"


def urls(router: Router) -> list[str]:
    return [each["url"] for each in router.http.get("/nodes").json()["nodes"]]


def test_a_verifier_registers_by_its_settings(router: Router) -> None:
    url = str(router.http.base_url)
    with serving(router=url, router_key=SecretStr("join"), advertise="http://127.0.0.1:1", weight=2.0):
        until(lambda: router.states() != [], "it has not registered")
        (node,) = router.http.get("/nodes").json()["nodes"]
        assert (node["url"], node["weight"]) == ("http://127.0.0.1:1", 2.0) and node["leaves_in"] > 10
    assert router.states() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"router": "http://r"}, "set VERIFIER_ADVERTISE, too"),
        ({"router": "http://r", "advertise": "http://n"}, "set VERIFIER_ROUTER_KEY, too"),
        ({"router": "ftp://r", "advertise": "http://n", "router_key": SecretStr("k")}, "is not the address of a node"),
    ],
)
def test_a_registration_that_lacks_something(given: dict[str, Any], said: str) -> None:
    settings = Settings(backend="scripted", **given)
    with pytest.raises(SettingsError, match=said):
        registration_of(settings, settings.key)


def test_what_a_registration_lacks_is_named_as_its_router_was_given() -> None:
    settings, _ = verifier_flags(["--backend", "scripted", "--router", "http://r", "--router-key", "k"], {})
    with pytest.raises(SettingsError, match=r"^--router: .*: set --advertise, too"):
        registration_of(settings, settings.key)


def test_the_nodes_of_flags_and_file(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text('[[nodes]]\nurl = "HTTP://A:1/"\nweight = 2\nhourly_price = 1.5\nmodel = "m"\n')
    settings, nodes = from_flags(["--node", "b:8000", "--node=http://a:1", "--nodes-file", str(file)], {})
    assert nodes == [NodeSpec("http://b:8000"), NodeSpec("http://a:1", "m", 2.0, 1.5)], "the file says more of one"
    assert settings.port == 8090 and settings.policy == "wjsq"


def test_variables_and_the_file_of_settings(tmp_path: Path) -> None:
    config = tmp_path / "specpair.toml"
    config.write_text('[router]\nregister_key = "join"\npolicy = "hash"\nport = 5\n')
    settings, nodes = from_flags(["--config", str(config), "--port", "7"], {"ROUTER_POLICY": "jsq2"})
    assert (settings.port, settings.policy, nodes) == (7, "jsq2", [])
    assert settings.looking_key is None
    settings, _ = from_flags(["--config", str(config)], {"ROUTER_API_KEY": "a", "ROUTER_NODE_KEY": "b"})
    assert settings.looking_key == "b"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no node: give --node"),
        (["--node", "a:1", "--look-every", "0"], "--look-every: must be in (0, 60], got 0"),
        (["--node", "a:1", "--api-key", "k", "--insecure"], "insecure: it means no key is needed"),
        (["--node", "a:1", "--node-key", "a b"], "--node-key: a header can carry"),
        (["--node", "a:1", "--policy", "wjsqs"], "did you mean wjsq?"),
        (["--node", "a:1", "--policy", "slo_aware"], "no 'slo_aware'"),
        (["--node", "a:1", "--policy", "nowhere:Mine"], "--policy: nowhere of the policy nowhere:Mine cannot be"),
    ],
)
def test_a_bad_setting_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        from_flags(arguments, {})
    assert said in str(raised.value)


NO_ADDRESSES = ["", "ftp://a", "http://", "http://a:b", "http://a:0", "http://a?x=1", "http://u:p@a", "http://a b", "é"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nodes = 3", "nodes: "),
        ('[[node]]\nurl = "http://a"', "nodes.toml: no key 'node'; did you mean nodes?"),
        ('[[nodes]]\nurl = "http://a"\nwieght = 2', "nodes.0: no key 'wieght'; did you mean weight?"),
        ('[[nodes]]\nurl = "http://a"\nweight = 0', "nodes.0.weight: "),
        *((f'[[nodes]]\nurl = "{url}"', "nodes.0.url: ") for url in NO_ADDRESSES),
        ('[[nodes]]\nurl = "http://a"\n[[nodes]]\nurl = "http://A/"', "http://a is listed twice"),
        ("[[nodes", "is not valid TOML"),
    ],
)
def test_a_bad_file_of_nodes(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(content)
    with pytest.raises(SettingsError) as raised:
        read_nodes(file)
    assert str(raised.value).startswith(str(file)) and said in str(raised.value)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, status, said in (
        (["router", "--node", "ftp://x"], 2, "'ftp://x' is not the address of a node"),
        (["router", "--nodes-file", "/none.toml"], 2, "specpair router: /none.toml cannot be read"),
        (["router", "key", "--help"], 0, "usage: specpair router key new NAME"),
        (["router", "--print-config", "--node", "a:1"], 0, "policy"),
        (["ruoter"], 2, "did you mean router?"),
        ([], 2, "COMMAND"),
        (["--version"], 0, "specpair "),
    ):
        monkeypatch.setattr(sys, "argv", ["specpair", *arguments])
        try:
            found = main()
        except SystemExit as ended:
            found = int(ended.code or 0)
        told = capsys.readouterr()
        assert found == status and said in told.out + told.err, (arguments, told)
