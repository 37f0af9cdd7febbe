"""Runs schemathesis, which sends requests generated from the OpenAPI document to a verifier.

It runs as a process of its own, so that all its phases run and warnings of its libraries do not fail our tests. It
sends the same requests in every run. `schemathesis.toml` lists the disabled checks with the reasons.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from tests.verifier_server.conftest import SCRIPT, Serve

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).with_name("schemathesis.toml")
KEY = "secret"
STREAM = "stream_session"


@pytest.mark.parametrize(
    ("script", "operations"),
    [
        (SCRIPT, ["--exclude-operation-id", STREAM]),  # the stream of an unfinished text has no end
        # Texts that end at once. Opening, deleting and listing sessions are included, so that links lead to sessions.
        (Script(seed=2, end_bias=100.0), ["--include-operation-id-regex", f"{STREAM}|prefill|delete|list"]),
    ],
    ids=["all but the stream", "streams that end"],
)
def test_no_schemathesis_check_fails(serve: Serve, tmp_path: Path, script: Script, operations: list[str]) -> None:
    draft = ScriptedBackend(Script(seed=2, agreement=0.7), slots=4)
    live = serve(ScriptedBackend(script, slots=4), wait=False, draft=draft, api_key=KEY, max_body_bytes=65536)
    live.http.headers["Authorization"] = f"Bearer {KEY}"
    live.wait_until_ready()
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    command += [
        "--config-file",
        str(CONFIG),
        "run",
        f"{live.url}/openapi.json",
        "--header",
        f"Authorization: Bearer {KEY}",
    ]
    command += ["--generation-deterministic", "--max-examples", "15", "--request-timeout", "10", "--no-color"]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    ran = subprocess.run(
        [*command, *operations], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = re.search(r"(\d+) generated, (\d+) passed", ran.stdout)
    assert counts is not None, ran.stdout
    assert int(counts[1]) == int(counts[2]) > 100
    assert live.http.get("/health").json()["status"] == "ready"
