"""Threads for which clients take turns."""

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

from specpair.fairness import FairTurns


class _Work(NamedTuple):
    client: Hashable
    do: Callable[[], None]


class FairPool:
    """Threads that do work of clients by turns, that of one client in order of arrival. Thread-safe."""

    def __init__(self, threads: int, name: str = "fused") -> None:
        """`name`: of the threads."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = Lock()  # guards the next two
        self._waiting: list[_Work] = []
        self._turns = FairTurns[_Work](lambda work: work.client)

    def submit(self, client: Hashable, do: Callable[[], None]) -> None:
        """Have a thread call `do` when it is the turn of `client`."""
        work = _Work(client, do)
        with self._lock:
            self._turns.arrived(work)
            self._waiting.append(work)
        self._threads.submit(self._next)

    def shutdown(self) -> None:
        """Wait until all work is done, and end the threads."""
        self._threads.shutdown()

    def _next(self) -> None:
        with self._lock:
            work = self._turns.pop_next(self._waiting)
        work.do()
