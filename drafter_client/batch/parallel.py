"""Runs tasks in several threads, with results as they come; and puts results in order."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")


class _End(NamedTuple):
    """A thread has ended, with the error that ended it, if any."""

    failure: BaseException | None


def in_parallel(
    tasks: Sequence[A], work: Callable[[A], R | None], threads: int, stop: threading.Event
) -> Generator[R, None, None]:
    """Yield the result of `work` for each task, in order of completion; tasks are started in the given order.

    Once `stop` is set, no task is started; `work` can check it, and returns None for a task that it abandons. Results
    from before are still yielded. An error that `work` raises sets `stop`, and is raised at the end. Closing the
    generator sets `stop`, too. All threads have ended when the generator has.
    """
    pending: SimpleQueue[A] = SimpleQueue()
    done: SimpleQueue[R | _End] = SimpleQueue()
    for task in tasks:
        pending.put(task)

    def run() -> None:
        failure = None
        try:
            while not stop.is_set():
                result = work(pending.get_nowait())
                if result is not None:
                    done.put(result)
        except Empty:
            pass
        except BaseException as error:  # raised in the caller's thread
            stop.set()
            failure = error
        done.put(_End(failure))

    workers: list[threading.Thread] = []
    failures: list[BaseException] = []
    try:
        for _ in range(min(threads, len(tasks))):
            worker = threading.Thread(target=run, daemon=True)
            worker.start()
            workers.append(worker)
        running = len(workers)
        while running:
            item = done.get()
            if not isinstance(item, _End):
                yield item
                continue
            running -= 1
            if item.failure is not None:
                failures.append(item.failure)
    except BaseException:
        stop.set()
        raise
    finally:
        for worker in workers:
            worker.join()
    if failures:
        raise failures[0]


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
