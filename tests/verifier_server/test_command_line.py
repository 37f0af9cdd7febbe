"""The verifier as a process: start, failures to start, and shutdown."""

import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.paths import ROOT
from tests.verifier_server.conftest import SCRIPT, Program
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.processes import (
    ENDLESS,
    MODULE,
    UVICORN,
    environment,
    hasty,
    ready,
    run,
    serving,
    with_each_command,
)
from verifier_server import app
from verifier_server.app import UVICORN_OPTIONS


def test_bad_variable_ends_uvicorn_with_one_line(verifier: Program) -> None:
    done = verifier(main=lambda: app.app, VERIFIER_SLOTS="nope")
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith("verifier: VERIFIER_SLOTS: 'nope' is neither auto") and done.err.count("\n") == 1


def test_several_workers_end_uvicorn_instead_of_restarting() -> None:
    done = run([*UVICORN, "--port", "0", "--workers", "2"], VERIFIER_BACKEND="scripted")
    assert done.stderr.count("verifier: --workers 2: sessions and their KV caches live in one process") == 1
    assert done.returncode == -signal.SIGALRM


def test_model_that_cannot_be_loaded_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and nothing else")
    for command, status in (([*MODULE, "--model", str(path)], 1), (UVICORN, 3)):
        done = run([*command, "--port", "0"], VERIFIER_MODEL=str(path))
        assert done.returncode == status, "a status that supervisors see as a failure"
        [last] = [line for line in done.stderr.splitlines() if "could not be loaded" in line]
        assert last.startswith(f"ERROR:    the model could not be loaded: {path} is no GGUF file that can")
        assert [line for line in done.stderr.splitlines() if "INFO" not in line][-1] == last
        assert "Traceback" not in done.stderr


def test_port_in_use_ends_uvicorn_while_the_model_loads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run([*UVICORN, "--port", str(taken.getsockname()[1])])
    assert done.returncode == 3
    assert "address already in use" in done.stderr
    assert "asked to stop" not in done.stderr and "ready: " not in done.stderr


# A verifier whose load never ends and cannot be interrupted. {} is replaced by further changes of a test.
STUCK = """
import signal, sys, threading, uvicorn
import verifier_server.app, verifier_server.engine.choice
def never(*_): threading.Event().wait()
verifier_server.engine.choice.load = never
{}
from verifier_server.program import main
sys.argv = ["verifier", "--port", "0"]
sys.exit(main())
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_stop_signal_ends_the_process_during_an_endless_load(ending: signal.Signals) -> None:
    changed = "verifier_server.app.GRACE = 0.1"
    with serving([sys.executable, "-c", STUCK.format(changed)]) as (process, _):
        process.send_signal(ending)
        assert process.wait(20) == -ending
        assert process.stderr is not None
        output = process.stderr.read()
        assert "asked to stop while the model loads" in output and "Traceback" not in output


@pytest.mark.parametrize(("flags", "reply"), [((), b"application/json"), (("--http", "h11"), b"text/plain")])
def test_plain_uvicorn_gets_connections_with_bounds_unless_flags_say_otherwise(
    flags: tuple[str, ...], reply: bytes
) -> None:
    """A process of its own, since it starts its command anew."""
    variables = {
        name: value for name, value in environment(VERIFIER_BACKEND="scripted").items() if name not in UVICORN_OPTIONS
    }
    command = [*UVICORN, "--port", "0", *flags]
    with subprocess.Popen(command, cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = next(found for line in process.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
            with socket.create_connection(("127.0.0.1", int(found[1])), 20) as connection:
                connection.sendall(b"garbage\r\n\r\n")
                came = b"".join(iter(lambda: connection.recv(65536), b""))
            assert came.startswith(b"HTTP/1.1 400 ") and reply in came
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
            assert process.returncode == 0
        finally:
            process.kill()


@with_each_command("ending", signal.SIGINT, signal.SIGTERM)
def test_verifier_serves_until_a_stop_signal(command: list[str], ending: signal.Signals) -> None:
    settings = {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": str(SCRIPT.seed)}
    with ready(command, **settings) as (process, http):
        reply = http.post("/generate", json={"prompt_ids": [1, 2], "max_tokens": 1})
        assert reply.json()["token_ids"] == plain(SCRIPT, [1, 2], 1)
        process.send_signal(ending)
        assert process.wait(20) in (0, -ending, 128 + ending)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_open_requests_get_shutting_down_with_retry_after() -> None:
    settings = {**ENDLESS, "VERIFIER_DRAIN_SECONDS": "0"}
    drafted = {"VERIFIER_DRAFT_BACKEND": "ngram", "VERIFIER_DRAFT_SLOTS": "1"}
    with ready(hasty(UVICORN), **settings, **drafted) as (process, http):

        def write(number: int) -> httpx.Response:
            with httpx.Client(base_url=http.base_url, timeout=60, trust_env=False) as client:
                mode = "fused" if number else "target"  # the second text of mode fused waits for the only draft slot
                return client.post("/generate", json={"prompt_ids": [1, 2], "mode": mode, "session_id": f"s{number}"})

        with ThreadPoolExecutor(3) as threads:
            waiting = [threads.submit(write, number) for number in range(3)]
            while http.get("/health").json()["sessions"] < 3:
                pass
            process.send_signal(signal.SIGTERM)
            for response in [each.result(30) for each in waiting]:
                assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")
                assert response.headers["retry-after"] == "1"
        assert process.wait(20) in (0, -signal.SIGTERM)
        assert process.stderr is not None
        output = process.stderr.read()
        assert "Traceback" not in output and "ERROR" not in output
