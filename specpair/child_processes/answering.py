"""Answers the requests of a `Worker`: each line of standard input is a request in JSON, each line of standard output
its answer, an object.

A thread answers. The process ends as soon as standard input does, also during an answer: the parent is gone then.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

MEMORY = 512 * 2**20  # bytes that a child may use
OUT_OF_MEMORY = 77  # exit status
_LOOKS_APART = 0.05  # seconds


def serve(answer: Callable[[Any], dict[str, Any]]) -> None:
    """Answer requests until standard input ends. More than `MEMORY` ends the process, or raises MemoryError."""
    _limit()
    lines, works = SimpleQueue[bytes](), threading.Event()
    threading.Thread(target=_answers, args=(answer, lines, works), name="answers", daemon=True).start()
    threading.Thread(target=_watch, args=(works,), name="memory", daemon=True).start()
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def _answers(answer: Callable[[Any], dict[str, Any]], lines: "SimpleQueue[bytes]", works: threading.Event) -> None:
    try:
        while True:
            line = lines.get()
            works.set()
            written = json.dumps(answer(json.loads(line))).encode()
            works.clear()
            sys.stdout.buffer.write(written + b"\n")
            sys.stdout.buffer.flush()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    finally:  # a fault
        os._exit(1)


def _limit() -> None:
    """Have the system refuse more memory, where it can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _watch(works: threading.Event) -> None:
    """Look at the memory during an answer: not every system keeps to the limit."""
    while memory() <= MEMORY:
        works.wait()
        time.sleep(_LOOKS_APART)
    os._exit(OUT_OF_MEMORY)


def memory() -> int:
    """Bytes of memory that this process has; the most that it has had where the system tells that only; 0: neither.

    Linux counts the most from the parent's on, which may hold a large model.
    """
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return 0
