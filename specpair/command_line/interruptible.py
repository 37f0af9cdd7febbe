"""Runs work that a signal can end at once, also while native code loads or compiles a model.

Python handles a signal only between two of its own instructions, and a compiler's thread pool would first wait for its
workers. So the work has a thread of its own, and an interrupted program ends by the signal, with that thread.
"""

import signal
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
_SLICE: Final = 0.1  # seconds: a signal that arrives just before a lock blocks is seen only when the wait ends
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, `kill`, a terminal that was closed


class _Ended(BaseException):
    """A signal wants the program to end; raised in the main thread. The argument is its number."""


def run(work: Callable[[], T], interrupted: Callable[[], None]) -> T:
    """Call `work` in a thread. Returns its result, or raises its exception.

    At a signal that ends programs, calls `interrupted` and ends the process by that signal. Afterwards such a signal
    ends the process silently. Signals that the process ignores are still ignored. Call in the main thread.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def keep() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=keep, name="work", daemon=True)
    default = (signal.SIG_DFL, signal.default_int_handler)
    taken = [number for number in _ENDING if signal.getsignal(number) in default]
    try:
        _handle(taken, _raise)
        thread.start()
        while thread.is_alive():
            thread.join(_SLICE)
        _handle(taken, signal.SIG_DFL)
    except _Ended as ended:
        _handle(taken, signal.SIG_DFL)
        try:
            interrupted()
        finally:
            signal.raise_signal(ended.args[0])
    if errors:
        raise errors[0]
    return results[0]


def _handle(numbers: list[signal.Signals], handler: Any) -> None:
    for number in numbers:
        signal.signal(number, handler)


def _raise(number: int, _frame: object) -> None:
    raise _Ended(number)
