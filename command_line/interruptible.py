"""Runs work that Ctrl-C can end at once, also while native code loads or compiles a model.

Python raises KeyboardInterrupt only between two of its own instructions, and a compiler's thread pool would first wait
for its workers. So the work has a thread of its own, and an interrupted program ends by the signal, with that thread.
"""

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from command_line.start import catch_interrupts

T = TypeVar("T")
_SLICE = 0.1  # seconds: a signal that arrives just before a lock blocks is seen only when the wait ends


def run(work: Callable[[], T], interrupted: Callable[[], None]) -> T:
    """Call `work` in a thread. Returns its result, or raises its exception.

    At Ctrl-C, calls `interrupted` and ends the process by SIGINT. Call in the main thread.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def keep() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=keep, name="work", daemon=True)
    try:
        catch_interrupts()
        thread.start()
        while thread.is_alive():
            thread.join(_SLICE)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interrupted()
        signal.raise_signal(signal.SIGINT)
    if errors:
        raise errors[0]
    return results[0]
