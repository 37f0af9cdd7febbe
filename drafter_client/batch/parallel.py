"""Jobs done by several threads, results as they come; and results held back until it is their turn."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

J = TypeVar("J")
R = TypeVar("R")
T = TypeVar("T")


class _Left(NamedTuple):
    """A thread has no more to do."""

    failure: BaseException | None


def in_parallel(
    jobs: Sequence[J], work: Callable[[J], R | None], threads: int, stop: threading.Event
) -> Generator[R, None, None]:
    """What `work` makes of each job, in the order in which they get done; jobs are begun in their own.

    Once `stop` is set, no job is begun any more; `work` may look at it and return None for a job that it breaks off.
    What got done until then is still yielded. An error that `work` raises sets it, and is raised at the end. Closing
    sets it, too; in any case all threads have ended afterwards.
    """
    todo: SimpleQueue[J] = SimpleQueue()
    done: SimpleQueue[R | _Left] = SimpleQueue()
    for job in jobs:
        todo.put(job)

    def run() -> None:
        failure = None
        try:
            while not stop.is_set():
                result = work(todo.get_nowait())
                if result is not None:
                    done.put(result)
        except Empty:
            pass
        except BaseException as error:  # whatever it is, it belongs to the caller's thread
            stop.set()
            failure = error
        done.put(_Left(failure))

    workers: list[threading.Thread] = []
    failures: list[BaseException] = []
    try:
        for _ in range(min(threads, len(jobs))):
            worker = threading.Thread(target=run, daemon=True)
            worker.start()
            workers.append(worker)
        at_work = len(workers)
        while at_work:
            item = done.get()
            if not isinstance(item, _Left):
                yield item
                continue
            at_work -= 1
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
    """Lets things pass in the order of their places 0, 1, … and holds back those that come early."""

    def __init__(self) -> None:
        self._next = 0
        self._early: dict[int, T] = {}

    def put(self, place: int, item: T) -> Iterator[T]:
        """What may pass now that this has come."""
        self._early[place] = item
        while self._next in self._early:
            yield self._early.pop(self._next)
            self._next += 1

    def rest(self) -> Iterator[T]:
        """What is held back, in order: those before it will not come any more."""
        for place in sorted(self._early):
            yield self._early.pop(place)
