"""The verifier as a process: how it starts, refuses to start, and ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.verifier_server.bench import plain
from tests.verifier_server.conftest import SCRIPT

ROOT = Path(__file__).parents[2]
MODULE = [sys.executable, "-m", "verifier_server"]
UVICORN = [sys.executable, "-m", "uvicorn", "verifier_server.app:app"]


def environment(**more: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("VERIFIER_", "UVICORN_"))}
    return {**clean, "PYTHONUNBUFFERED": "1", **more}


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=60)


def test_a_bad_flag_ends_it_with_one_line() -> None:
    done = run([*MODULE, "--rows", "nope"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("verifier: --rows: Input should be 'auto' or should be a valid integer")
    assert done.stderr.count("\n") == 1


def test_a_bad_variable_ends_uvicorn_with_one_line() -> None:
    done = run([*UVICORN, "--port", "0"], VERIFIER_ROWS="nope")
    assert done.returncode == 3
    assert done.stderr.startswith("verifier: VERIFIER_ROWS: Input should be 'auto'")
    assert "Traceback" not in done.stderr


def test_workers_end_uvicorn_instead_of_being_started_over_and_over() -> None:
    done = run([*UVICORN, "--port", "0", "--workers", "2"], VERIFIER_BACKEND="scripted")
    assert "verifier: --workers 2: sessions and their KV caches live in one process" in done.stderr
    assert "failed to start, stopping the parent process" in done.stderr


def test_a_model_that_cannot_be_loaded_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and nothing else")
    done = run([*MODULE, "--port", "0", "--model", str(path)])
    assert done.returncode == 1
    assert f"the model could not be loaded: llama.cpp could not load {path}" in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def serving(command: list[str], **more: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A verifier process and a client for the port it took."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(**more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
            if found:
                with httpx.Client(base_url=found[1], timeout=30, trust_env=False) as http:
                    yield process, http
                return
        raise AssertionError(f"it never ran: {process.wait()}")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", [MODULE, UVICORN], ids=["python -m", "uvicorn"])
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(command: list[str], ending: signal.Signals) -> None:
    settings = {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": str(SCRIPT.seed)}
    with serving([*command, "--port", "0"], **settings) as (process, http):
        while http.get("/health").status_code == 503:
            pass
        assert http.post("/prefill", json={"prompt_ids": [1, 2]}).json()["tokens"] == plain(SCRIPT, [1, 2], 1)
        process.send_signal(ending)
        assert process.wait(20) in (0, -ending, 128 + ending)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
