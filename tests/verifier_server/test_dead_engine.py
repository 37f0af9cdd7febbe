"""A dead engine ends the process, after its texts were told why; one that hangs is no longer called alive."""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from drafter_client import Lookup, Mode, Options, Outage, Pair, Tokens
from tests.verifier_server.conftest import SCRIPT
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.processes import COMMANDS, ENDLESS, MODULE, UVICORN, ready, serving

_FAULTY = """
import os, signal, sys, threading
from backends.scripted import ScriptedBackend
forward, faults = ScriptedBackend.extend_top_logits, []
def faulty(self, *given):
    if signal.SIGUSR1 in faults: raise RuntimeError("a bug")
    if signal.SIGUSR2 in faults: threading.Event().wait()
    return forward(self, *given)
ScriptedBackend.extend_top_logits = faulty
for number in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(number, lambda number, _: faults.append(number))
"""
_STUCK = """
import verifier_server.app as app
app.ENDS_WITHIN = 1
ScriptedBackend.close = lambda self: threading.Event().wait()
"""
_MAIN = {
    "python -m": "from verifier_server.__main__ import main\nsys.exit(main())",
    "uvicorn": f"from uvicorn.main import main\nsys.argv.insert(1, {UVICORN[-1]!r})\nmain()",
}
BODY = {"prompt_ids": [256, 1], "temperature": 1.0}


def faulty(name: str, more: str = "") -> list[str]:
    """The command whose engine dies on SIGUSR1, and hangs on SIGUSR2."""
    return [sys.executable, "-c", _FAULTY + more + _MAIN[name]]


@pytest.mark.parametrize("more", ["", _STUCK], ids=["", "and cannot be freed"])
@pytest.mark.parametrize(("name", "status"), [("python -m", 1), ("uvicorn", 3)], ids=COMMANDS)
def test_a_dead_engine_ends_the_process_after_texts_were_told(name: str, status: int, more: str) -> None:
    with ready(faulty(name, more), **ENDLESS, VERIFIER_DRAIN_SECONDS="1000") as (process, http), ExitStack() as streams:
        http.post("/prefill", json={**BODY, "session_id": "a", "self_continue": True}).raise_for_status()
        written = streams.enter_context(http.stream("POST", "/generate", json={**BODY, "stream": True})).iter_lines()
        pushed = streams.enter_context(http.stream("GET", "/sessions/a/stream")).iter_lines()
        assert (next(written), next(pushed)) == ("event: open", "event: tokens")
        process.send_signal(signal.SIGUSR1)
        for lines in (written, pushed):
            told = [line.removeprefix("data: ") for line in lines if "engine_error" in line]
            error = json.loads(told[0])["error"]
            assert error["message"].startswith("the engine died: RuntimeError: a bug: see the verifier's log")
        assert process.wait(20) == status, "a status that supervisors see as a failure"
        assert process.stderr is not None
        log = process.stderr.read()
        assert "the engine died" in log and "could not be loaded" not in log


def test_a_text_goes_on_at_the_verifier_that_a_supervisor_starts_anew() -> None:
    options, tokens, outages = Options(max_tokens=200, mode=Mode.REMOTE, lockstep=True), list[int](), list[Outage]()
    with ExitStack() as started_anew, ready(faulty("python -m"), **ENDLESS) as (process, http):

        def start_anew(outage: Outage) -> None:
            if not outages:
                started_anew.enter_context(serving([*MODULE, "--port", str(http.base_url.port)], **ENDLESS))
            outages.append(outage)

        with Pair(str(http.base_url), Lookup(), on_outage=start_anew) as pair:
            for event in pair.generate([256, 1, 2], options):
                tokens += [token.id for token in event.tokens] if isinstance(event, Tokens) else []
                if process.poll() is None and tokens:
                    process.send_signal(signal.SIGUSR1)
                    http.post("/prefill", json=BODY)  # a pass in which it dies
                    assert process.wait(20) == 1
    assert tokens == plain(SCRIPT, [256, 1, 2], 200) and outages


@contextmanager
def notified(path: Path) -> Iterator[Iterator[str]]:
    """Takes the place of systemd: the lines that a service tells it, as they come, up to a silence of three seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(os.fspath(path))

        def lines() -> Iterator[str]:
            while select.select([told], [], [], 3.0)[0]:
                yield from told.recv(4096).decode().splitlines()

        yield lines()


def test_systemd_is_told_of_the_start_and_the_end(tmp_path: Path) -> None:
    with notified(tmp_path / "s") as lines, ready(MODULE, **ENDLESS, NOTIFY_SOCKET=str(tmp_path / "s")) as (process, _):
        assert next(lines) == "READY=1"
        process.send_signal(signal.SIGTERM)
        assert "STOPPING=1" in lines
        assert process.wait(20) == 0


def test_systemd_hears_nothing_more_of_an_engine_that_hangs(tmp_path: Path) -> None:
    variables = {"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "600000"}
    with notified(tmp_path / "s") as lines, ready(faulty("python -m"), **ENDLESS, **variables) as (process, http):
        assert "READY=1" in lines and "WATCHDOG=1" in lines
        http.post("/generate", json={**BODY, "max_tokens": 2}).raise_for_status()
        assert "WATCHDOG=1" in lines, "an engine without work has not hung"
        process.send_signal(signal.SIGUSR2)
        with pytest.raises(httpx.ReadTimeout):
            http.post("/prefill", json=BODY, timeout=0.5)
        assert "STATUS=hangs" in lines
        assert http.get("/health").status_code == 200, "the event loop lives"
        assert "WATCHDOG=1" not in lines, "within three seconds, in which ten were due"
