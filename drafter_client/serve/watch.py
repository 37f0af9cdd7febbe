"""Looks at the verifier again and again, so that a service knows of an outage or of another model without a text."""

import threading
from collections.abc import Callable

PAUSE = 2.0  # seconds between looks


class VerifierWatch:
    """Calls `look` in a thread, from `start` to `close`."""

    def __init__(self, look: Callable[[], None], pause: float = PAUSE) -> None:
        """`pause`: seconds between calls."""
        self._look, self._pause = look, pause
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. What `look` waits for has to be ended before."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            self._look()
