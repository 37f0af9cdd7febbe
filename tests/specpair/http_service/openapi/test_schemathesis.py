"""Runs schemathesis, which sends requests generated from the OpenAPI document to a verifier and to a drafter.

It runs as a process of its own, so that all its phases run and warnings of its libraries do not fail our tests. It
sends the same requests in every run. `schemathesis.toml` lists the disabled checks with the reasons.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
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


UNENDING = ["--exclude-operation-id", STREAM]  # the stream of an unfinished text
SHORT = ["--include-operation-id-regex", f"{STREAM}|prefill|delete|list"]


@pytest.mark.parametrize(
    ("service", "flags", "least"),
    [
        pytest.param(_verifier, [*FEW, *UNENDING, *OWN], 25, id="few to the verifier"),
        pytest.param(_drafter, [*FEW, *BUT_WATCH], 30, id="few to the drafter"),  # with those that both services share
        pytest.param(_drafter, [*SYSTEMATIC, *BUT_WATCH], 500, id="systematic to the drafter", marks=pytest.mark.slow),
        pytest.param(_verifier, [*MANY, *UNENDING, *OWN], 500, id="many to the verifier", marks=pytest.mark.slow),
        pytest.param(
            partial(_verifier, ENDING), [*MOST, *SHORT], 100, id="many about short texts", marks=pytest.mark.slow
        ),
        pytest.param(_drafter, [*RANDOM, *BUT_WATCH], 400, id="many to the drafter", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_found_by_requests(
    service: Callable[[], AbstractContextManager[str]], flags: list[str], least: int, tmp_path: Path
) -> None:
    with service() as url:
        _run(url, tmp_path, flags, least)
