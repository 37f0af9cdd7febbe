"""Who may use `drafter serve`: keys of its own with limits and usage, private networks without, web pages."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import AppOptions, create_app
from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import DRAFTER, Access, KeyStore
from specpair.http_service.keys.gate import Accounts, Gate
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from specpair.http_service.web_pages import Origins
from tests.drafter_client.support import Verifier, serving
from tests.gateway.openai_api.conftest import served

PROMPT = "def f(x):"
PAGE = {"Origin": "https://app.example"}


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with serving(api_key="verifiers") as running:
        yield running


@contextmanager
def drafter(verifier: Verifier, store: KeyStore, **given: Any) -> Iterator[tuple[httpx.Client, Gate]]:
    gate = Gate(Access(store, names=DRAFTER), Accounts())
    pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"), texts=2, api_key="verifiers")
    with (
        served(
            create_app(pair, Options(draft_n=4, lockstep=True), texts=2, queue=8, how=AppOptions(gate=gate, **given))
        ) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=20) as http,
    ):
        yield http, gate


def complete(http: httpx.Client, key: str | None, **options: Any) -> httpx.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 20} | options, headers=headers)


def usage(http: httpx.Client, key: str) -> list[dict[str, Any]]:
    response = http.get("/usage", headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 200
    keys: list[dict[str, Any]] = response.json()["keys"]
    return keys


def test_its_key_is_needed_and_is_not_the_verifiers(verifier: Verifier) -> None:
    with drafter(verifier, KeyStore("s3cret")) as (http, _):
        for key in (None, "verifiers", "wrong"):
            refused = complete(http, key)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            said = "wants its key" if key is None else "does not take the key that was sent"
            assert f"this drafter {said}" in refused.json()["error"]["message"]
            assert http.get("/metrics").status_code == http.get("/usage").status_code == 401
        assert complete(http, "s3cret").status_code == 200
        assert http.get("/health").json() == {"status": "ready", "access": "unauthorized"}
        client = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="s3cret", max_retries=0)
        with client:
            assert client.models.list().data


def test_metrics_that_are_open_need_no_key(verifier: Verifier) -> None:
    with drafter(verifier, KeyStore("s3cret"), metrics_open=True) as (http, _):
        assert http.get("/metrics").status_code == 200
        assert http.get("/usage").status_code == 401


def test_without_a_key_private_networks_are_served(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with drafter(verifier, KeyStore()) as (http, _):
        assert complete(http, None).status_code == 200
        assert "no DRAFTER_SERVE_KEY is set" in caplog.text
        far = http.post("/v1/completions", json={"prompt": "x"}, headers={"Forwarded": "for=203.0.113.9"})
        assert (far.status_code, far.json()["error"]["code"]) == (403, "forbidden")
        assert "this drafter has no key" in far.json()["error"]["message"]


def test_texts_and_drafts_are_counted_for_the_key(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    for name in ("one", "boss"):
        key_file.add(path, StoredKey(name, digest_of(name), admin=name == "boss"))
    with drafter(verifier, KeyStore(None, path)) as (http, gate):
        prompt = 1 + len(PROMPT)
        reply = complete(http, "one").json()
        streamed = complete(http, "one", stream=True).text
        told = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
        drafts = [each["spec_decode"] for each in (reply, told[-1])]
        [counted] = usage(http, "one")
        assert counted == {
            "key": "one",
            "requests": 2,
            "prompt_tokens": 2 * prompt,
            "generated_tokens": 40,
            "draft_tokens": sum(each["num_draft_tokens"] for each in drafts),
            "accepted_tokens": sum(each["num_accepted_tokens"] for each in drafts),
        }
        assert counted["draft_tokens"] > 0
        assert [each["key"] for each in usage(http, "boss")] == ["boss", "one"]
        assert gate.accounts.usage()["one"].generated_tokens == 40


def test_limits_of_a_key(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    for name, limits in (
        ("slow", KeyLimits(tokens_per_second=10)),
        ("few", KeyLimits(sessions=2)),
        ("none", KeyLimits()),
    ):
        key_file.add(path, StoredKey(name, digest_of(name), limits))
    with drafter(verifier, KeyStore(None, path)) as (http, gate):
        gate.accounts.clock = lambda: 0.0
        assert complete(http, "slow").status_code == 200
        refused = complete(http, "slow")
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["type"]) == (429, "rate_limit_exceeded", "tokens")
        assert float(refused.headers["retry-after"]) >= error["retry_after"] >= 1.0, "20 of 10 tokens were spent"
        client = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="slow", max_retries=0)
        with client, pytest.raises(openai.RateLimitError):
            client.completions.create(model="", prompt="x")
        assert complete(http, "few", n=2).status_code == 200
        refused = complete(http, "few", n=3)
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "requests")
        assert "your key may have 2 at once" in refused.json()["error"]["message"]
        assert complete(http, "few", n=2).status_code == 200, "the refused texts were given back"
        assert complete(http, "none", n=3).status_code == 200


def test_the_endpoints_for_tokens_want_the_key_and_keep_to_its_limits(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    key_file.add(path, StoredKey("slow", digest_of("slow"), KeyLimits(tokens_per_second=10)))
    chat = {"messages": [{"role": "user", "content": "x"}]}
    asked: tuple[tuple[str, Any], ...] = (
        ("/tokenize", {"content": "x"}),
        ("/tokenize", chat),
        ("/detokenize", {"tokens": [97]}),
        ("/apply-template", chat),
    )
    with drafter(verifier, KeyStore(None, path)) as (http, gate):
        gate.accounts.clock = lambda: 0.0
        headers = {"Authorization": "Bearer slow"}
        assert [http.post(path, json=body).status_code for path, body in asked] == [401] * 4
        assert http.post("/detokenize", json={"tokens": [97]}, headers=headers).json()["content"] == "a"
        no_chat = http.post("/apply-template", json=chat, headers=headers).json()["error"]
        assert no_chat["code"] == "no_chat_template"
        assert complete(http, "slow").status_code == 200
        assert [http.post(path, json=body, headers=headers).status_code for path, body in asked] == [429] * 4
        [counted] = usage(http, "slow")
        assert (counted["generated_tokens"], counted["requests"]) == (20, 3)


def test_page_of_another_origin_cannot_start_a_text(verifier: Verifier) -> None:
    body, headers = json.dumps({"prompt": "x"}), PAGE | {"Content-Type": "text/plain"}
    with drafter(verifier, KeyStore()) as (http, gate):
        refused = http.post("/v1/completions", content=body, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_origin")
        assert gate.accounts.usage() == {}
    with drafter(verifier, KeyStore(), origins=Origins(("https://app.example",), "x")) as (http, _):
        allowed = http.post("/v1/completions", content=body, headers=headers)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://app.example")


def test_its_keys_share_no_prefix_though_the_verifier_knows_one_key(tmp_path: Path, verifier: Verifier) -> None:
    """Nor do they share what the draft model has read: the time to the first token would tell what others wrote."""
    keys = tmp_path / "keys.toml"
    for name in ("one", "two"):
        key_file.add(keys, StoredKey(name, digest_of(name), KeyLimits(), admin=False))
    prompt = PROMPT * 12

    def cached(key: str, **options: Any) -> int:
        reply = complete(http, key, prompt=prompt, **options)
        assert reply.status_code == 200, reply.text
        return int(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    with drafter(verifier, KeyStore(None, keys)) as (http, _):
        assert cached("one") == 0
        assert cached("two") == 0
        assert cached("one") == cached("two") == len(prompt)
        assert cached("one", cache_salt="another") == 0
