"""Runs schemathesis, which sends requests generated from the OpenAPI document to a verifier and to a drafter.

It runs as a process of its own, so that all its phases run and warnings of its libraries do not fail our tests. It
sends the same requests in every run. `schemathesis.toml` lists the disabled checks with the reasons.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from tests.gateway.openai_api.conftest import CHATML, served
from tests.verifier_server.conftest import SCRIPT, LiveServer
from verifier_server.settings import Settings

CONFIG = Path(__file__).with_name("schemathesis.toml")
KEY = "secret"
STREAM = "stream_session"
BUT_WATCH = ["--exclude-operation-id", "watch_pair"]  # a stream that ends with the service
# The operations of OpenAI and Anthropic are shared: the drafter is asked them. /events ends with the service.
OWN = ["--exclude-path-regex", "^/(v1/|events$)"]
# Texts that end at once. Opening, deleting and listing sessions are included, so that links lead to sessions.
ENDING = Script(seed=2, end_bias=100.0)
FEW = ["--phases", "examples,fuzzing", "--max-examples", "2"]
SYSTEMATIC = ["--phases", "coverage"]  # every value and pair of fields that the schema sets apart, some 9,000 requests
MANY = ["--max-examples", "12"]  # of each operation
RANDOM = ["--max-examples", "30", "--phases", "examples,fuzzing,stateful"]
MOST = ["--max-examples", "30"]


@contextmanager
def _verifier(script: Script = SCRIPT) -> Iterator[str]:
    backend = ScriptedBackend(script, slots=4)
    backend.chat_template = CHATML
    draft = ScriptedBackend(Script(seed=2, agreement=0.7), slots=4)
    live = LiveServer(Settings(backend="scripted", api_key=KEY), backend, draft=draft)
    live.http.headers["Authorization"] = f"Bearer {KEY}"
    live.wait_until_ready()
    try:
        yield live.url
        assert live.http.get("/health").json()["status"] == "ready"
    finally:
        live.close()


@contextmanager
def _drafter() -> Iterator[str]:
    """Its texts end at once: most requests set no limit, and would fill the context."""
    with _verifier(ENDING) as url:
        pair = Pair(url, DraftModel(Path("2"), "scripted"), texts=4, api_key=KEY)
        with served(create_app(pair, Options(), texts=4, queue=16)) as address:
            yield address
            assert httpx.get(f"{address}/health", trust_env=False).json()["status"] == "ready"


def _run(url: str, folder: Path, flags: Sequence[str], least: int) -> None:
    """Run schemathesis, which has to find nothing with at least `least` requests."""
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    command += ["--config-file", str(CONFIG), "run", f"{url}/openapi.json", "--header", f"Authorization: Bearer {KEY}"]
    command += ["--generation-deterministic", "--request-timeout", "10", "--no-color"]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    ran = subprocess.run([*command, *flags], cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = re.search(r"(\d+) generated, (\d+) passed", ran.stdout)
    assert counts is not None, ran.stdout
    assert int(counts[1]) == int(counts[2]) > least
    print(ran.stdout)


def test_few_requests_to_the_verifier(tmp_path: Path) -> None:
    with _verifier() as url:
        _run(url, tmp_path, [*FEW, "--exclude-operation-id", STREAM, *OWN], 25)


def test_few_requests_to_the_drafter(tmp_path: Path) -> None:
    """They include OpenAI's endpoints, which both services share."""
    with _drafter() as url:
        _run(url, tmp_path, [*FEW, *BUT_WATCH], 30)


@pytest.mark.slow
def test_systematic_requests_to_the_drafter(tmp_path: Path) -> None:
    with _drafter() as url:
        _run(url, tmp_path, [*SYSTEMATIC, *BUT_WATCH], 500)


@pytest.mark.slow
def test_many_requests_to_the_verifier(tmp_path: Path) -> None:
    with _verifier() as url:  # the stream of an unfinished text has no end
        _run(url, tmp_path, [*MANY, "--exclude-operation-id", STREAM, *OWN], 500)


@pytest.mark.slow
def test_many_requests_to_a_verifier_of_short_texts(tmp_path: Path) -> None:
    with _verifier(ENDING) as url:
        _run(url, tmp_path, [*MOST, "--include-operation-id-regex", f"{STREAM}|prefill|delete|list"], 100)


@pytest.mark.slow
def test_many_requests_to_the_drafter(tmp_path: Path) -> None:
    with _drafter() as url:
        _run(url, tmp_path, [*RANDOM, *BUT_WATCH], 400)
