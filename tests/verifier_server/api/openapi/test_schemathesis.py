"""What a machine makes up from the OpenAPI document, sent to a verifier: no check of schemathesis finds a fault.

It runs as a program of its own: so all of its phases run, and warnings of its libraries are not ours. The same requests
come on every run. `schemathesis.toml` names what is left out, with the reasons.
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
        (SCRIPT, ["--exclude-operation-id", STREAM]),  # as a stream of a text that goes on has no end
        # Of texts that end at once. Opening, deleting and listing go with it, so that its links lead to sessions.
        (Script(seed=2, end_bias=100.0), ["--include-operation-id-regex", f"{STREAM}|prefill|delete|list"]),
    ],
    ids=["all but the stream", "streams that end"],
)
def test_no_check_fails(serve: Serve, tmp_path: Path, script: Script, operations: list[str]) -> None:
    draft = ScriptedBackend(Script(seed=2, agreement=0.7), rows=4)
    live = serve(ScriptedBackend(script, rows=4), wait=False, draft=draft, api_key=KEY, max_body_bytes=65536)
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
    told = re.search(r"(\d+) generated, (\d+) passed", ran.stdout)
    assert told is not None, ran.stdout
    assert int(told[1]) == int(told[2]) > 100
    assert live.http.get("/health").json()["status"] == "ready"
