"""Runs tasks in several threads, with results as they come; and puts results in order."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")
_SLICE = 0.1  # seconds: a signal that arrives just before a wait begins is handled only when the wait ends


def in_parallel(
    tasks: Sequence[A], work: Callable[[A], R | None], threads: int, stop: threading.Event
) -> Generator[R, None, None]:
    """Yield the result of `work` for each task, in order of completion; tasks are started in the given order.

    Once `stop` is set, no task is started; `work` can check it, and returns None for a task that it abandons. Results
    from before are still yielded. An error that `work` raises sets `stop`, and is raised at the end. The generator sets
    `stop` at its end, too, also when it is closed. All threads have ended by then.
    """
    done: SimpleQueue[Future[R | None]] = SimpleQueue()

    def run(task: A) -> R | None:
        try:
            return None if stop.is_set() else work(task)
        except BaseException:
            stop.set()
            raise

    failure: BaseException | None = None
    with ThreadPoolExecutor(threads) as pool:
        try:
            for task in tasks:
                pool.submit(run, task).add_done_callback(done.put)
            for _ in tasks:
                future = _first(done)
                if (error := future.exception()) is not None:
                    failure = failure or error
                elif (result := future.result()) is not None:
                    yield result
        finally:
            stop.set()
    if failure is not None:
        raise failure


def _first(queue: SimpleQueue[T]) -> T:
    """Wait for an item. Signals that arrive meanwhile are handled."""
    while True:
        with suppress(Empty):
            return queue.get(timeout=_SLICE)


class InOrder(Generic[T]):
    """Passes items on in the order of their positions 0, 1, …; early items wait."""

    def __init__(self) -> None:
        self._next = 0
        self._early: dict[int, T] = {}

    def put(self, position: int, item: T) -> Iterator[T]:
        """Add an item. Yields it and those that waited for it, if it is the next one."""
        self._early[position] = item
        while self._next in self._early:
            yield self._early.pop(self._next)
            self._next += 1

    def rest(self) -> Iterator[T]:
        """Yield the waiting items in order, when no more will come."""
        for position in sorted(self._early):
            yield self._early.pop(position)
