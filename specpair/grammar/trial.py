"""Tries grammars in child processes before this process compiles them: time and memory are bounded there."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from queue import LifoQueue
from typing import Any

from specpair.child_processes.worker import Unanswered, Worker, written
from specpair.grammar.tokenizer import TokenTable

DEADLINE = 10.0  # seconds
AT_A_TIME = 2  # grammars
_SLOWEST = 0.25  # seconds of processor time for a mask, in which no text gets a token
_MOST_KEPT = 48 * 2**20  # bytes that a grammar may hold
_GROWN = 4 * 2**20  # bytes that a grammar may take from a child that tries others
_CHILD = "specpair.grammar.trial_child"


class TooCostly(Exception):
    """A grammar takes too much. `late`: it had no answer in time."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class Trials:
    """The children of one vocabulary, which are started when they are needed. Thread-safe."""

    def __init__(self, table: Callable[[], TokenTable], limits: dict[str, Any]) -> None:
        """`limits`: of llguidance."""

        @cache
        def greeting() -> bytes:
            return written({"vocabulary": table().json, "limits": limits})

        self._workers = [Worker(_CHILD, greeting) for _ in range(AT_A_TIME)]
        self._idle = LifoQueue[Worker]()  # the one that was used last comes first
        for worker in self._workers:
            self._idle.put(worker)

    def prepare(self) -> None:
        """Start a child, in a thread, so that the first grammar need not wait for it."""
        worker = self._workers[-1]

        def start() -> None:
            with suppress(Unanswered):
                worker.start()

        threading.Thread(target=start, name="grammar trial", daemon=True).start()

    def attempt(self, source: str, seconds: float) -> tuple[str, int]:
        """What llguidance says against a grammar (empty: it is well), and the bytes that it holds. Raises TooCostly.

        `seconds`: how long it may take. Before, it waits for an idle child.
        """
        worker = self._idle.get()
        try:
            return _checked(worker, source, seconds)
        finally:
            self._idle.put(worker)

    def kill(self) -> None:
        """Kill the children, at once: what they try is refused."""
        for worker in self._workers:
            worker.kill()


def _checked(worker: Worker, source: str, seconds: float) -> tuple[str, int]:
    try:
        answer = worker.ask({"source": source}, seconds)
    except Unanswered as error:
        raise TooCostly(f"it cannot be compiled: {error}", late=error.late) from None
    if "wrong" in answer:
        return answer["wrong"], 0
    grown = answer["grown"]
    if grown > _GROWN or answer["memory"] > _MOST_KEPT:  # so that what the next one takes is seen
        worker.end()
    if grown > _MOST_KEPT:
        raise TooCostly(f"it takes {grown >> 20} MB of memory, at most {_MOST_KEPT >> 20} MB are given")
    if answer["slowest"] > _SLOWEST:
        raise TooCostly(f"the mask of a token takes {answer['slowest']:.2f} s, at most {_SLOWEST:g} s are given")
    return "", grown
