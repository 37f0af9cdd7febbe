"""A thread pool in which clients take turns, so that one client with much work does not block the others."""

from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock


class ClientTurns:
    """Queues work by client. The client whose turn is the longest ago comes first; its work runs in order of arrival.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        self._lock = Lock()

    def put(self, client: str, work: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.setdefault(client, deque()).append(work)

    def next(self) -> Callable[[], None]:
        """Take the next piece of work from the queue. Raises StopIteration if none waits."""
        with self._lock:
            client, queue = next(iter(self._waiting.items()))
            work = queue.popleft()
            if queue:
                self._waiting.move_to_end(client)
            else:
                del self._waiting[client]
            return work


class FairPool:
    """Threads that take their work from `ClientTurns`."""

    def __init__(self, threads: int) -> None:
        self._turns = ClientTurns()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="fused")

    def submit(self, client: str, work: Callable[[], None]) -> None:
        """Have a thread do `work` when it is the turn of `client`."""
        self._turns.put(client, work)
        self._threads.submit(lambda: self._turns.next()())

    def shutdown(self) -> None:
        """Wait until all work is done, and end the threads."""
        self._threads.shutdown()
