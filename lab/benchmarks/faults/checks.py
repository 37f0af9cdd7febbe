"""Checks that several parts share: a stream that came whole, and what processes hold. Needs /proc."""

import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import httpx

# How much a process that lives through all of it may hold more at rest than when the first texts were written.
FILES, THREADS, MEMORY = 8, 8, 48.0  # the last one in MiB
NO_END = "the stream ended without [DONE]"


def completion(lines: Iterable[str]) -> tuple[str, str | None]:
    """The text of a stream of `/v1/completions`, as far as it came, and why it is not whole; None: it is."""
    text, ended = "", False
    try:
        for line in lines:
            if line == "data: [DONE]":
                return text, None if ended else "[DONE] came before the end"
            if line.startswith("data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    return text, line
                text += "".join(each["text"] for each in event["choices"])
                ended = ended or any(each["finish_reason"] for each in event["choices"])
    except httpx.TransportError as error:
        return text, repr(error)
    return text, NO_END


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
    """Whether it is done within so many seconds."""
    patience, pause = time.monotonic() + seconds, threading.Event()
    while not done():
        if time.monotonic() > patience:
            return False
        pause.wait(0.2)
    return True
