"""`drafter serve` as a child process: it prints its address, answers there, and ends with status 0 when told to."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.drafter_client.cli.command_line import TOY
from tests.drafter_client.support import Verifier
from tests.paths import ROOT

COMMAND = [sys.executable, "-m", "drafter_client", "serve", "--port", "0", *TOY]


@contextmanager
def _serving(verifier: Verifier, *more: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A `drafter serve`, and the first line that it prints."""
    command = [*COMMAND, "--verifier", verifier.url, *more]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process, process.stderr.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_it_prints_its_address_and_ends_in_order(verifier: Verifier, how: signal.Signals) -> None:
    with _serving(verifier, "--serve-key", "sesame") as (process, line):
        found = re.fullmatch(r"scripted-1, scripted-1 drafts: (http://127\.0\.0\.1:\d+)/v1  \(Ctrl-C ends it\)\n", line)
        assert found is not None, line
        body = {"prompt": "def f(x):", "max_tokens": 4, "temperature": 0}
        with httpx.Client(base_url=found[1], headers={"Authorization": "Bearer sesame"}, trust_env=False) as client:
            reply = client.post("/v1/completions", json=body)
        assert reply.status_code == 200 and reply.json()["usage"]["completion_tokens"] == 4
        process.send_signal(how)
        out, complaints = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert all(line.startswith("INFO: ") for line in complaints.splitlines()), complaints  # SIGTERM drains
    assert verifier.sessions == 0


@pytest.mark.parametrize(
    ("flags", "why"), [(["--lockstep"], "lockstep"), (["--draft-n", "3"], "a fixed draft length")], ids=str
)
def test_it_says_once_which_option_leaves_auto_no_choice(verifier: Verifier, flags: list[str], why: str) -> None:
    with _serving(verifier, *flags) as (process, line):
        assert line.endswith(f"mode auto is remote for all texts: {why} is asked for\n")
        assert process.stderr is not None and "(Ctrl-C ends it)" in process.stderr.readline()


def test_a_port_in_use_is_reported_in_one_line(verifier: Verifier) -> None:
    port = verifier.url.rpartition(":")[2]
    with _serving(verifier, "--port", port) as (process, line):
        assert line == f"drafter: port {port} is in use: choose another with --port\n"
        assert process.wait(60) == 1
