"""Keys of drafter serve, with limits and usage; neither keys nor prompts are told."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import AppOptions, create_app
from drafter_client.trace.writer import TraceFolder
from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import DRAFTER, VERIFIER, Access, KeyStore
from specpair.http_service.keys.gate import Accounts, Gate
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from specpair.http_service.observability import logs
from specpair.http_service.observability.metrics import ServiceMetrics
from specpair.http_service.web_pages import Origins
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Ticks, Verifier, serving
from tests.gateway.openai_api.conftest import served

MARK = "Zxqv"
VERIFIERS, SERVED = f"sp-verifiers-{MARK}", f"sp-served-{MARK}"
PROMPT = f"my {MARK} prompt"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    for name, key, limits in (
        ("verifiers", VERIFIERS, KeyLimits()),
        ("served", SERVED, KeyLimits(tokens_per_second=1000)),
    ):
        key_file.add(path, StoredKey(name, digest_of(key), limits))
    return path


def marked(folder: Path) -> list[str]:
    """Which files of a folder hold the mark."""
    return [path.name for path in folder.rglob("*") if path.is_file() and MARK in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_marked_prompts_and_keys_are_nowhere(
    keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, log_format: logs.LogFormat
) -> None:
    caplog.set_level(logging.DEBUG)
    clock, told = Ticks(0.0), []
    store = KeyStore(None, keys, clock)
    traces = TraceFolder(tmp_path / "traces")
    with serving(keys_file=keys, access_log=True, metrics_by_key=True) as verifier:
        pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"), texts=2, api_key=VERIFIERS, observer=traces)
        metrics = ServiceMetrics(lambda: "m", by_key=True)
        gate = Gate(Access(store, names=DRAFTER), Accounts())
        app = create_app(pair, Options(), 2, 2, metrics, how=AppOptions(access_log=True, gate=gate))
        with served(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=20) as http:

            def ask(body: Any, key: str = SERVED, path: str = "/v1/completions") -> httpx.Response:
                content = body if isinstance(body, str) else json.dumps(body)
                headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
                return http.post(path, content=content, headers=headers)

            good = {"prompt": PROMPT, "max_tokens": 20}
            assert ask(good | {"prediction": {"type": "content", "content": PROMPT}}).status_code == 200
            assert ask(good | {"stream": True}).status_code == 200
            told.append(ask(good, SERVED + "x"))
            told.append(ask(good, PROMPT))
            told.append(ask({"prompt": PROMPT * 1000}))
            told.append(ask({"prompt": {"text": PROMPT}}))
            told.append(ask({"prompt": PROMPT, "max_tokens": PROMPT}))
            told.append(ask({"prompt": PROMPT, "stop": [1, PROMPT]}))
            told.append(ask(f'{{"prompt": "{PROMPT}'))
            told.append(ask({"messages": [{"role": PROMPT, "content": PROMPT}]}, path="/v1/chat/completions"))
            told.append(ask({"messages": [{"role": "user", "content": PROMPT}]}, path="/v1/chat/completions"))
            told.append(httpx.post(f"{verifier.url}/prefill", json={"prompt": PROMPT}, trust_env=False))
            gate.accounts.of("served").count(gate.accounts.clock(), generated=10**6)
            told.append(ask(good))
            keys.write_text(f"{MARK} = [")  # somebody pastes something into the file
            clock.now += 10.0
            assert ask(good).status_code == 429
            text = http.get("/metrics", headers={"Authorization": f"Bearer {SERVED}"}).text
            verifiers = httpx.get(
                f"{verifier.url}/metrics", headers={"Authorization": f"Bearer {VERIFIERS}"}, trust_env=False
            ).text
    formatter = logs.JsonFormatter() if log_format == "json" else logs.PlainFormatter()
    lines = [formatter.format(record) for record in caplog.records if not record.name.startswith("httpcore")]
    assert any("the keys are unchanged" in line for line in lines)
    assert sum("/v1/completions" in line for line in lines) >= 10, "access lines"
    assert 'key="served"' in text and 'key="verifiers"' in verifiers
    assert [response.status_code for response in told if response.status_code < 400] == []
    for written in (*lines, text, verifiers, *(response.text for response in told)):
        assert marks_of(written) == []
    assert (tmp_path / "traces" / "run-1.json").exists() and marked(tmp_path / "traces") == []


def marks_of(written: str) -> list[str]:
    """The marked words in what was written."""
    return [word for word in written.split() if MARK in word]


def test_trace_and_errors_of_the_command_line_have_neither(drafter: Command, keys: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    flags = [*TOY, "--max-tokens", "10", "--profile", str(traces)]
    with serving(keys_file=keys) as verifier:
        ran = drafter("--verifier", verifier.url, "--api-key", VERIFIERS, "--prompt", PROMPT, *flags)
        assert ran.status == 0 and VERIFIERS not in ran.out + ran.err
        refused = drafter("--verifier", verifier.url, "--api-key", SERVED + "x", "--prompt", PROMPT, *flags)
        shown = drafter("serve", "--serve-key", SERVED, "--api-key", VERIFIERS, "--print-config")
    assert refused.status == 1 and "does not take this key" in refused.err and MARK not in refused.err
    assert shown.status == 0 and MARK not in shown.out + shown.err and "(set)" in shown.out
    assert (traces / "run-1.json").exists() and marked(traces) == []
    for bad in (["serve", "--serve-key", f"{SERVED} {MARK}"], ["serve", "--serve-key", f"{SERVED}\u00e9"]):
        ran = drafter(*bad)
        assert ran.status == 2 and "--serve-key: a header can carry" in ran.err and MARK not in ran.err


TEXT_PROMPT = "def f(x):"
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
    return http.post("/v1/completions", json={"prompt": TEXT_PROMPT, "max_tokens": 20} | options, headers=headers)


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
        prompt = 1 + len(TEXT_PROMPT)
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
    prompt = TEXT_PROMPT * 12

    def cached(key: str, **options: Any) -> int:
        reply = complete(http, key, prompt=prompt, **options)
        assert reply.status_code == 200, reply.text
        return int(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    with drafter(verifier, KeyStore(None, keys)) as (http, _):
        assert cached("one") == 0
        assert cached("two") == 0
        assert cached("one") == cached("two") == len(prompt)
        assert cached("one", cache_salt="another") == 0


@pytest.mark.parametrize("names", [VERIFIER, DRAFTER])
def test_a_service_on_loopback_alone_does_not_claim_to_serve_networks(names: object) -> None:
    warning = str(Access(KeyStore(), names=names).warning())  # type: ignore[arg-type]
    assert "everybody on this machine can use" in warning
    assert "where it listens to more than loopback, everybody in its private networks" in warning
