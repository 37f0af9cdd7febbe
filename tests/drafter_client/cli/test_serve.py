"""drafter serve as a command, and programs that wait for a verifier."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import httpx
import pytest

from drafter_client.cli.steps import retry_until_there
from drafter_client.errors import BadKey, VerifierUnreachable
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier
from tests.forking import Process, started
from tests.verifier_server.processes import ENDLESS, MODULE, ready
from tests.waiting import until

COMMAND = [sys.executable, "-m", "drafter_client", "serve", "--port", "0", *TOY]


@contextmanager
def _serving(verifier: str, *more: str) -> Iterator[tuple[Process, str]]:
    """A `drafter serve`, and the first line that it prints."""
    command = [*COMMAND, "--verifier", verifier, *more]
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
    with _serving(verifier.url, "--serve-key", "sesame") as (process, line):
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


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
@pytest.mark.parametrize("mode", ["auto", "remote", "off"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "drained"])
def test_a_stop_during_texts_tells_their_callers(how: signal.Signals, mode: str) -> None:
    body = {"prompt": "def f(x):", "ignore_eos": True, "max_tokens": 500_000, "speculative": {"mode": mode}}
    with ExitStack() as stack:
        _, endless = stack.enter_context(ready(MODULE, **ENDLESS))
        process, line = stack.enter_context(
            _serving(str(endless.base_url), "--serve-key", "sesame", "--drain", "0.5", "--texts", "2")
        )
        url = line.split()[-4].removesuffix("/v1")
        http = stack.enter_context(httpx.Client(base_url=url, headers={"Authorization": "Bearer sesame"}, timeout=60))
        threads = stack.enter_context(ThreadPoolExecutor())
        lines = stack.enter_context(http.stream("POST", "/v1/completions", json={**body, "stream": True})).iter_lines()
        assert next(lines).startswith("data: ")
        whole = threads.submit(http.post, "/v1/completions", json=body)
        until(lambda: endless.get("/health").json()["sessions"] == 2, "the second text does not begin", 30.0)
        process.send_signal(how)
        said = [json.loads(line.removeprefix("data: ")) for line in lines if '"error"' in line]
        assert [each["error"]["code"] for each in said] == ["shutting_down"]
        reply = whole.result()
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "shutting_down")
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == 0
    assert all(line.startswith("INFO: ") for line in complaints.splitlines()), complaints


def test_a_port_in_use_is_reported_in_one_line(verifier: Verifier, drafter: Command) -> None:
    port = verifier.url.rpartition(":")[2]
    ran = drafter("serve", *TOY, "--verifier", verifier.url, "--port", port)
    assert (ran.status, ran.out, ran.err) == (1, "", f"drafter: port {port} is in use: choose another with --port\n")


AWAY = VerifierUnreachable("no verifier answers")


@pytest.mark.parametrize(("patience", "asked"), [(0.0, 1), (2.5, 4)])
def test_the_wait_has_an_end(patience: float, asked: int) -> None:
    now, count = 0.0, 0

    def make(notice: Callable[[str], object]) -> None:
        nonlocal count
        count += 1
        raise AWAY

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 1.0

    with pytest.raises(VerifierUnreachable):
        retry_until_there(make, patience, lambda _: None, sleep, lambda: now)
    assert count == asked


def test_what_waiting_does_not_mend_is_raised() -> None:
    def make(notice: Callable[[str], object]) -> None:
        raise BadKey("no")

    with pytest.raises(BadKey):
        retry_until_there(make, 300.0, lambda _: None)


@pytest.fixture
def nobody() -> str:
    """An address at which nothing answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_chat_and_serve_wait(
    drafter: Command, nobody: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    port = ["--port", "0"] if command == "serve" else []
    ran = drafter(command, "--verifier", nobody, *TOY, *port, "--patience", "0")
    assert ran.status == 1 and ran.err.startswith(f"drafter: no verifier answers at {nobody} (")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drafter_client.cli.steps.retry_until_there", partial(retry_until_there, sleep=interrupted))
    ran = drafter(command, "--verifier", nobody, *TOY, *port)
    assert (ran.status, ran.out) == (130, "")
    said = caplog.text if command == "serve" else ran.err
    assert f"waiting for the verifier, 300 s at most (--patience): no verifier answers at {nobody} (" in said
    assert ran.err.endswith("\ndrafter: interrupted\n")
