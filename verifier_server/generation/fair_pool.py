"""A pool of threads in which clients take turns, so that one with much to do keeps nobody out."""

from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock


class ClientTurns:
    """What waits, by client: the client first whose turn is the longest ago, and of each client what came first.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        self._lock = Lock()

    def put(self, client: str, work: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.setdefault(client, deque()).append(work)

    def next(self) -> Callable[[], None]:
        """Raises StopIteration when nothing waits."""
        with self._lock:
            client, works = next(iter(self._waiting.items()))
            work = works.popleft()
            if works:
                self._waiting.move_to_end(client)
            else:
                del self._waiting[client]
            return work


class FairPool:
    """Threads that take work by `ClientTurns`."""

    def __init__(self, threads: int, prefix: str) -> None:
        self._turns = ClientTurns()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=prefix)

    def submit(self, client: str, work: Callable[[], None]) -> None:
        self._turns.put(client, work)
        self._threads.submit(lambda: self._turns.next()())

    def shutdown(self) -> None:
        """Wait until all is done."""
        self._threads.shutdown()
