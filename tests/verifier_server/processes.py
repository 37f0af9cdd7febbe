"""The verifier as a process."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest

from tests.forking import Process, started
from tests.verifier_server.conftest import SCRIPT
from verifier_server.app import UVICORN_OPTIONS

MODULE = [sys.executable, "-m", "verifier_server"]
ENDLESS = {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": str(SCRIPT.seed), "VERIFIER_CONTEXT": "1000000"}
UVICORN = [sys.executable, "-m", "uvicorn", "verifier_server.app:app"]
COMMANDS = {"python -m": MODULE, "uvicorn": UVICORN}
_HASTY = "import sys\nfrom verifier_server import service\nservice.GRACE = 0.1\n"


def hasty(command: list[str]) -> list[str]:
    """The command, one of `COMMANDS`, where open requests have a tenth of a second to finish instead of two."""
    if command is UVICORN:
        return [sys.executable, "-c", _HASTY + "from uvicorn.main import main\nmain()", UVICORN[-1]]
    return [sys.executable, "-c", _HASTY + "from verifier_server.__main__ import main\nsys.exit(main())"]


def with_each_command(names: str, *values: Any) -> pytest.MarkDecorator:
    """Parametrizes `command` and `names`: each command with one of the two `values`, and in slow tests with both.

    The code that takes signals and settings is the same for both commands.
    """
    cases = []
    for at, (name, command) in enumerate(COMMANDS.items()):
        for other, value in enumerate(values):
            given = value if isinstance(value, tuple) else (value,)
            marks = () if at == other else pytest.mark.slow
            cases.append(pytest.param(command, *given, marks=marks, id=f"{name}-{'-'.join(map(str, given))}"))
    return pytest.mark.parametrize(f"command, {names}", cases)


def environment(**more: str) -> dict[str, str]:
    """The variables of a verifier, as uvicorn's command has them once it has started itself anew: a forked process has
    no command line of its own to start."""
    ours = ("VERIFIER_", "UVICORN_", "SPECPAIR_")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**clean, **UVICORN_OPTIONS, "PYTHONUNBUFFERED": "1", **more}


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    process = started(command, environment(**more), subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.wait(), out, err)


def errors_of_ended(process: Process, number: signal.Signals) -> str:
    """Send a signal, by which the process has to end. Returns what it wrote to standard error."""
    process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == -number
    return errors


@contextmanager
def serving(
    command: list[str], stdout: int = subprocess.DEVNULL, loaded: bool = False, /, **more: str
) -> Iterator[tuple[Process, httpx.Client]]:
    """Start a verifier process. Yields it with a client for its port; with `loaded`, once its model is loaded."""
    process = started(command, environment(**more), stdout)
    try:
        assert process.stderr is not None
        found, waits = None, loaded
        for line in process.stderr:
            found = found or re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
            waits = waits and "ready: the model is loaded" not in line
            if found and not waits:
                with httpx.Client(base_url=found[1], timeout=30, trust_env=False) as http:
                    yield process, http
                return
        raise AssertionError(f"the verifier did not start: exit status {process.wait()}")
    finally:
        process.kill()
        process.communicate()


def ready(command: list[str], **settings: str) -> AbstractContextManager[tuple[Process, httpx.Client]]:
    """Start a verifier process on a free port. Yields it with a client, once its model is loaded."""
    return serving([*command, "--port", "0"], subprocess.DEVNULL, True, **settings)
