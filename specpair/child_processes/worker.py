"""A child process that answers requests one by one: for work that may never end or take all memory, and which
only killing the process stops.

The child is a module that calls `specpair.child_processes.worker.serve`. It ends with this process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import finalize

MEMORY = 512 * 2**20  # bytes that a child may use
OUT_OF_MEMORY = 77  # exit status
_LOOKS_APART = 0.05  # seconds
_ROOT = Path(__file__).resolve().parents[2]
_START = 60.0  # seconds in which a child has to be ready


def serve(answer: Callable[[Any], dict[str, Any]]) -> None:
    """Answer requests until standard input ends. More than `MEMORY` ends the process."""
    with suppress(ImportError, OSError, ValueError):  # have the system refuse more memory, where it can
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    works = threading.Event()
    threading.Thread(target=_watch, args=(works, os.getppid()), name="watch", daemon=True).start()
    try:
        for line in sys.stdin.buffer:
            works.set()
            answered = written(answer(json.loads(line)))
            works.clear()
            sys.stdout.buffer.write(answered)
            sys.stdout.buffer.flush()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _watch(works: threading.Event, parent: int) -> None:
    """End this process if its parent is gone or it takes too much memory: not every system enforces the limit."""
    while memory() <= MEMORY:
        works.wait()
        if os.getppid() != parent:
            os._exit(1)
        time.sleep(_LOOKS_APART)
    os._exit(OUT_OF_MEMORY)


def memory() -> int:
    """Bytes of memory that this process uses. Some systems report the peak only, some nothing (0).

    Linux counts the most from the parent's on, which may hold a large model.
    """
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return 0


class Unanswered(Exception):
    """The child took too long and was killed (`late`), it ended, or it could not be started."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class Worker:
    """A child process. The first request starts the child, and so does a request after an unanswered one.

    Thread-safe: one request at a time.
    """

    def __init__(self, module: str, greeting: Callable[[], bytes] | None = None) -> None:
        """`module`: the child's program.
        `greeting`: the first request to each child, as `written`. Its answer says that the child is ready.
        """
        self._module, self._greeting = module, greeting
        self._lock = threading.Lock()  # held during a request
        self._child: subprocess.Popen[bytes] | None = None
        self._killed: finalize[..., Worker] | None = None  # ends the child with this object

    def start(self) -> None:
        """Start the child unless it runs, and wait until it is ready. Raises Unanswered."""
        with self._lock:
            self._running()

    def ask(self, request: object, seconds: float) -> dict[str, Any]:
        """The child's answer. The child is killed after `seconds`, which count once it is ready. Raises Unanswered."""
        with self._lock:
            self._running()
            return self._exchange(written(request), seconds)

    def end(self) -> None:
        """End the child once it has answered. A later request starts another child."""
        with self._lock:
            self._end()

    def kill(self) -> None:
        """Kill the child, at once: a request under way stays unanswered. A later one starts another child."""
        child = self._child
        if child is not None:
            child.kill()

    def _running(self) -> None:
        if self._child is not None and self._child.poll() is None:
            return
        self._end()
        pipe = subprocess.PIPE
        # A process group of its own: Ctrl-C in the terminal is meant for this process.
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", self._module],
                cwd=_ROOT,
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:  # the system has no memory, process or file left for it
            raise Unanswered(f"its process could not be started: {error.strerror}") from None
        self._killed = finalize(self, _kill, self._child)
        self._killed.atexit = False  # a thread may be reading then; the child ends by itself
        if self._greeting is not None:
            self._exchange(self._greeting(), _START)

    def _exchange(self, request: bytes, seconds: float) -> dict[str, Any]:
        child, late = self._child, threading.Event()
        assert child is not None and child.stdin is not None and child.stdout is not None

        def kill() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon, timer.name = True, "child deadline"
        timer.start()
        try:
            child.stdin.write(request)
            child.stdin.flush()
            answer: dict[str, Any] = json.loads(child.stdout.readline())
        except (OSError, ValueError):  # the child has ended
            status = self._end()
            if late.is_set():
                raise Unanswered(f"it takes longer than {seconds:g} s", late=True) from None
            raise Unanswered(_ending(status)) from None
        except BaseException:  # Ctrl-C: the answer would be taken for the next one's
            self._end()
            raise
        finally:
            timer.cancel()
        return answer

    def _end(self) -> int:
        """End the child, if there is one; return its exit status."""
        child, self._child = self._child, None
        if child is None or self._killed is None:
            return 0
        self._killed()
        return child.returncode


def written(request: object) -> bytes:
    """A request as a child reads it."""
    return json.dumps(request).encode() + b"\n"


def _kill(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin is not None and child.stdout is not None
    child.kill()  # unless it has ended
    with suppress(OSError):  # it ended with a request unread
        child.stdin.close()
    child.stdout.close()
    child.wait()


def _ending(status: int) -> str:
    if status in (OUT_OF_MEMORY, -signal.SIGABRT):
        return f"it takes more than {MEMORY // 2**20} MB of memory"
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"
