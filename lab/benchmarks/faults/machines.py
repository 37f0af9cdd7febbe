"""Verifiers as processes that are killed, drained, cut off and added, and what processes hold. Needs /proc."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import NamedTuple

import httpx

from models import DEFAULT_TARGET
from specpair.child_processes.children import child
from specpair.child_processes.serving import variables
from tests.deploy.routers import free_port

SETTINGS = {
    **{"deterministic": 1, "threads": 1, "context": 512, "slots": 4, "draft_backend": "ngram"},
    **{"drain_seconds": 5, "session_ttl": 15, "log_format": "json"},
}
PAUSE = 3.0  # seconds between two events
CUT_OFF = 4.0
AT_REST = 60.0  # seconds within which sessions expire and everything is back
# How much a process that lives through all of it may hold more at rest than when the first texts were written.
FILES, THREADS, MEMORY = 8, 8, 48.0  # the last one in MiB


class Machine:
    """One verifier on a port of its own."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self.port = stack, free_port()
        self._process: Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_away(self) -> bool:
        """Whether its process has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def is_ready(self) -> bool:
        return not self.is_away and self.health().get("status") == "ready"

    def health(self) -> dict[str, object]:
        """What it says of itself; nothing: it does not answer."""
        try:
            return dict(httpx.get(f"{self.url}/health", timeout=5, trust_env=False).json())
        except (httpx.HTTPError, ValueError):
            return {}

    @property
    def rests(self) -> bool:
        """Whether nothing is left of any text."""
        if self.is_away:
            return True
        with suppress(httpx.HTTPError):
            httpx.get(f"{self.url}/sessions", timeout=5, trust_env=False)  # which removes expired sessions
        health = self.health()
        return [health.get(name) for name in ("sessions", "texts", "waiting")] == [0, 0, 0]

    def start(self, model: Path = DEFAULT_TARGET) -> None:
        command = ("-m", "uvicorn", "verifier_server.app:app", "--port", str(self.port))
        environment = os.environ | variables(**SETTINGS, model=model)
        self._process = self._stack.enter_context(
            child(*command, environment=environment, stdout=DEVNULL, stderr=DEVNULL)
        )

    def tell(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def disturb(machines: Sequence[Machine], rng: random.Random, timers: list[threading.Timer]) -> str:
    """Have one thing happen to one of them; returns which."""
    ready = [each for each in machines if each.is_ready]
    away = [each for each in machines if each.is_away]
    possible = ["added", "added"] * bool(away) + ["killed", "drained", "cut off"] * (len(ready) > 1)
    if not possible:
        return "nothing, as one is left"
    what = rng.choice(possible)
    one = rng.choice(away if what == "added" else ready)
    if what == "added":
        one.start()
    elif what == "killed":
        one.tell(signal.SIGKILL)
    elif what == "drained":
        one.tell(signal.SIGTERM)
    else:
        one.tell(signal.SIGSTOP)
        timers.append(threading.Timer(CUT_OFF, one.tell, [signal.SIGCONT]))
        timers[-1].start()
    return what


class Held(NamedTuple):
    """What a process holds."""

    files: int
    threads: int
    memory: float  # MiB

    @classmethod
    def by(cls, pid: int) -> "Held":
        folder = Path("/proc") / str(pid)
        [line] = [line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:")]
        files, threads = (sum(1 for _ in (folder / name).iterdir()) for name in ("fd", "task"))
        return cls(files, threads, int(line.split()[1]) / 1024)

    def more_than(self, before: "Held") -> dict[str, float]:
        """By what this exceeds `before` beyond the bounds."""
        over = {
            "files": self.files - before.files - FILES,
            "threads": self.threads - before.threads - THREADS,
            "MiB": self.memory - before.memory - MEMORY,
        }
        return {name: count for name, count in over.items() if count > 0}


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    patience, pause = time.monotonic() + seconds, threading.Event()
    while not done():
        if time.monotonic() > patience:
            return False
        pause.wait(0.2)
    return True


def routers() -> list[int]:
    """The processes of `specpair router` that this one has started."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and _command(entry)[1:4] == ["-m", "specpair", "router"] and _is_ours(entry)
    ]


def _command(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_text().split("\0")
    except OSError:  # it has ended
        return []


def _is_ours(entry: Path) -> bool:
    """Whether a process is a child of a child of this one."""
    parents = [int((entry / "stat").read_text().rpartition(")")[2].split()[1])]
    parents.append(int(Path(f"/proc/{parents[0]}/stat").read_text().rpartition(")")[2].split()[1]))
    return os.getpid() in parents


def left(machines: Sequence[Machine], before: dict[int, Held]) -> list[str]:
    """What is left of the texts when all are over. `before`: what processes that live on held at the beginning."""
    faults = []
    for each in machines:  # one that drains ends meanwhile
        if not wait_until(lambda machine=each: machine.rests, AT_REST):  # type: ignore[misc]
            faults.append(f"left at a verifier: {each.health()}")
    for pid, held in before.items():
        if not wait_until(lambda pid=pid, held=held: not Held.by(pid).more_than(held), AT_REST):  # type: ignore[misc]
            faults.append(f"{_command(Path('/proc') / str(pid))[2:5]} holds more: {Held.by(pid).more_than(held)}")
    return faults
