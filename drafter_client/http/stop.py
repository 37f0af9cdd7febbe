"""A flag that ends the waiting for a verifier, and aborts what is under way there."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext


class Stop:
    """A flag that any thread may set: that of a text is set when no more of the text is wanted.

    It counts as set if the flag `above` is set: after that of a pair, none of its texts waits for a lost verifier.
    """

    def __init__(self, above: "Stop | None" = None) -> None:
        self._event, self._above = threading.Event(), above
        self._lock = threading.Lock()
        self._breaks: list[Callable[[], None]] = []

    def set(self) -> None:
        with self._lock:
            self._event.set()
            breaks = list(self._breaks)
        for each in breaks:
            each()

    def is_set(self, *, above: bool = True) -> bool:
        """`above`: whether the flag above counts, too."""
        return self._event.is_set() or (above and self._above is not None and self._above.is_set())

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as this flag or the one above is set."""
        with nullcontext() if self._above is None else self._above.breaking(self._event.set):
            self._event.wait(seconds)

    @contextmanager
    def breaking(self, abort: Callable[[], None], *, above: bool = True) -> Iterator[None]:
        """Within the block, setting the flag calls `abort`, in the thread that sets it. If it is set already, `abort`
        is called at once. `above`: whether the flag above does so, too."""
        with nullcontext() if self._above is None or not above else self._above.breaking(abort):
            with self._lock:
                self._breaks.append(abort)
                already_set = self._event.is_set()
            if already_set:
                abort()
            try:
                yield
            finally:
                with self._lock:
                    self._breaks.remove(abort)
