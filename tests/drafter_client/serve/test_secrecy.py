"""No prompt, text or key of the drafter's end is in a log, a trace, a metric or an error."""

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import AppOptions, create_app
from drafter_client.trace.writer import TraceFolder
from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import DRAFTER, Access, KeyStore
from specpair.http_service.keys.gate import Accounts, Gate
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from specpair.http_service.observability import logs
from specpair.http_service.observability.metrics import ServiceMetrics
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Ticks, serving
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
    assert any("the keys stay as they were" in line for line in lines)
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
