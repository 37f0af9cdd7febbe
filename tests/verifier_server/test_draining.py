"""The end of a verifier and its health: draining, a dead engine, a supervisor; its limit of open files."""

import asyncio
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from backends.scripted import ScriptedBackend
from drafter_client import Lookup, Mode, Options, Outage, Pair, Tokens
from specpair.protocol.errors import ShuttingDown
from tests.forking import Process
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.processes import COMMANDS, ENDLESS, MODULE, UVICORN, hasty, ready, serving
from verifier_server.app import SPARE, allow_files, create_app
from verifier_server.engine.queue import Queue
from verifier_server.settings import Settings

IDS = [256, 1, 2]
BOTH = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def drain(process: Process, http: httpx.Client) -> None:
    """Send SIGTERM; returns when the verifier drains."""
    process.send_signal(signal.SIGTERM)
    while http.get("/health").json()["status"] != "draining":
        pass


def errors(process: Process) -> str:
    """The rest of its log."""
    assert process.stderr is not None
    return process.stderr.read()


@BOTH
def test_text_under_way_ends_and_new_ones_are_refused(command: list[str]) -> None:
    text = plain(SCRIPT, IDS, 6)
    opening = {"session_id": "a", "prompt_ids": IDS, "max_tokens": 6}
    with ready(command, **ENDLESS, VERIFIER_DRAIN_SECONDS="60") as (process, http):
        http.post("/prefill", json=opening).raise_for_status()
        with http.stream("GET", "/sessions/a/stream") as pushed:  # a drafter listens, so its text is under way
            lines = pushed.iter_lines()
            assert next(lines) == "event: tokens"
            drain(process, http)
            refused = [
                http.post("/prefill", json={"session_id": "b", "prompt_ids": IDS}),
                http.post("/generate", json={"prompt_ids": IDS}),
            ]
            for response in refused:
                assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")
                assert response.headers["retry-after"] == "1"
            assert (http.get("/ready").status_code, http.get("/ready").json()) == (503, {"status": "draining"})
            assert (http.get("/live").status_code, http.get("/live").json()) == (200, {"status": "alive"})
            assert http.get("/metrics").status_code == 200
            again = http.post("/prefill", json=opening).json()
            assert (again["tokens"], again["total_tokens"]) == (text[:1], 4)
            body = {"session_id": "a", "position": 4, "draft_tokens": text[1:]}
            assert http.post("/verify", json=body).json()["finish_reason"] == "length"
            assert "event: end" in list(lines)
        assert process.wait(20) == 0
        assert "Traceback" not in errors(process)


def test_drafter_s_text_is_written_to_its_end() -> None:
    options = Options(max_tokens=60, mode=Mode.REMOTE, lockstep=True)
    told: list[Outage] = []
    with ready(UVICORN, **ENDLESS) as (process, http):
        with (
            Pair(str(http.base_url), Lookup(), on_outage=told.append) as pair,
            Pair(str(http.base_url), Lookup(), patience=0.0) as late,
        ):
            generation = pair.generate(IDS, options)
            tokens = [*next(event.tokens for event in generation if isinstance(event, Tokens))]
            drain(process, http)
            with pytest.raises(ShuttingDown):
                list(late.generate(IDS, options))
            tokens += [token for event in generation if isinstance(event, Tokens) for token in event.tokens]
        assert [token.id for token in tokens] == plain(SCRIPT, IDS, 60) and told == []
        assert process.wait(20) == 0


def test_text_that_does_not_end_in_time_gets_an_error() -> None:
    with ready(hasty(MODULE), **ENDLESS, VERIFIER_DRAIN_SECONDS="0.2") as (process, http):
        body = {"prompt_ids": IDS, "stream": True, "temperature": 1.0}
        with http.stream("POST", "/generate", json=body) as written:
            lines = written.iter_lines()
            assert next(lines) == "event: open"
            process.send_signal(signal.SIGTERM)
            assert '"code":"shutting_down"' in list(lines)[-2]
        assert process.wait(20) == 0
        assert "draining took too long" in errors(process)


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


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of a simulated system."""
    limits = [256, 1000]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, given: limits.__setitem__(slice(None), given))
    return limits


def test_limit_too_low_for_the_sessions_is_logged(limits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    allow_files(1001 - SPARE)
    assert limits == [1000, 1000]
    (record,) = caplog.records
    assert "at most 1000 files" in record.message


def test_application_raises_the_limit_at_its_start(limits: list[int]) -> None:
    app = create_app(Settings(model="8", backend="scripted"))

    async def started() -> None:
        async with app.router.lifespan_context(app):
            assert limits == [1000, 1000]

    asyncio.run(started())


Change = Callable[[LiveServer, pytest.MonkeyPatch], None]


def loading(live: LiveServer, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(live.service.loader, "models", None)
    live.service.loader.progress = 0.5


def queue_full(_: LiveServer, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "is_full", True)


def sessions_in_use(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.post("/prefill", {"session_id": "a", "prompt": "x"})
    live.service.sessions.use(live.service.sessions.get("a"))


def draining(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.service.draining.begun = True


def stopping(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.service.stopping = True


def engine_dead(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.service.engine.failure = "a device went away"


@pytest.mark.parametrize(
    ("change", "status", "live_status", "health"),
    [
        (lambda *_: None, "ready", 200, (200, "ready")),
        (loading, "loading", 200, (503, "loading")),
        (queue_full, "overloaded", 200, (200, "ready")),
        (sessions_in_use, "overloaded", 200, (200, "ready")),
        (draining, "draining", 200, (503, "draining")),
        (stopping, "draining", 200, (503, "draining")),
        (engine_dead, "failed", 503, (503, "failed")),
    ],
    ids=["ready", "loading", "queue full", "sessions in use", "draining", "stopping", "failed"],
)
def test_statuses_are_told_apart(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    status: str,
    live_status: int,
    health: tuple[int, str],
) -> None:
    live = serve(ScriptedBackend(SCRIPT), max_sessions=1)
    with monkeypatch.context() as patch:
        change(live, patch)
        ready = live.http.get("/ready")
        assert (ready.status_code, ready.json()) == (200 if status == "ready" else 503, {"status": status})
        assert ("retry-after" in ready.headers) == (status not in ("ready", "failed"))
        alive = live.http.get("/live")
        assert (alive.status_code, alive.json()["status"]) == (live_status, "alive" if live_status == 200 else "failed")
        told = live.http.get("/health")
        assert (told.status_code, told.json()["status"]) == health
        assert ("overloaded" in told.json()) == (status == "overloaded")


def test_known_sessions_are_served_while_it_drains(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    body = {"session_id": "a", "prompt_ids": [256, 1, 2], "max_tokens": 8}
    opened = live.post("/prefill", body)
    live.service.draining.begun = True
    assert live.post("/prefill", body)["tokens"] == opened["tokens"]
    assert live.post("/verify", {"session_id": "a", "position": 4, "draft_tokens": []})["total_tokens"] == 5
    continued = {**body, "committed_ids": opened["tokens"], "seed": opened["sampling"]["seed"]}
    assert live.post("/generate", continued)["finish_reason"] == "length", "as in mode auto, in the same session"
