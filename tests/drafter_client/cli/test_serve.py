"""`drafter serve` as a child process: it prints its address, answers there, and ends with status 0 when told to."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier
from tests.forking import Process, started

COMMAND = [sys.executable, "-m", "drafter_client", "serve", "--port", "0", *TOY]


@contextmanager
def _serving(verifier: Verifier, *more: str) -> Iterator[tuple[Process, str]]:
    """A `drafter serve`, and the first line that it prints."""
    command = [*COMMAND, "--verifier", verifier.url, *more]
    process = started(command, os.environ, subprocess.PIPE)
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
def test_it_says_once_which_option_leaves_auto_no_choice(
    verifier: Verifier,
    drafter: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    flags: list[str],
    why: str,
) -> None:
    monkeypatch.setattr("drafter_client.cli.serve.serve", _begun_and_ended)
    ran = drafter("serve", "--port", "0", *TOY, "--verifier", verifier.url, *flags)
    assert ran.status == 0 and ran.err.endswith("(Ctrl-C ends it)\n") and ran.err.count("\n") == 1
    assert caplog.text.count("mode auto is") == 1
    assert f"mode auto is remote for all texts: {why} is asked for\n" in caplog.text


def _begun_and_ended(config: uvicorn.Config, sockets: list[socket.socket]) -> None:
    """In place of serving: what the service does when it starts and when it stops."""

    async def lifespan(app: Any) -> None:
        async with app.router.lifespan_context(app):
            pass

    asyncio.run(lifespan(config.app))
    for each in sockets:
        each.close()


def test_a_port_in_use_is_reported_in_one_line(verifier: Verifier, drafter: Command) -> None:
    port = verifier.url.rpartition(":")[2]
    ran = drafter("serve", *TOY, "--verifier", verifier.url, "--port", port)
    assert (ran.status, ran.out, ran.err) == (1, "", f"drafter: port {port} is in use: choose another with --port\n")
