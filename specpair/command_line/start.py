"""Starts a program. Ctrl-C during its imports ends it at once and silently. A missing package, or an output
that cannot be written, is an error of one line.

Python's own handler would raise KeyboardInterrupt within an import and print a traceback. Therefore each entry module
is small: it imports this module first, which then imports the program itself."""

import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final, TypeVar

from specpair.extras import MissingExtra, extras_named

READER_LEFT = 141  # exit status when the reader of the output has left (`| head`): as of a program that SIGPIPE ends
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_default_action = False  # whether `die_by_interrupts` gave SIGINT the system's default action
T = TypeVar("T")
_SLICE: Final = 0.1  # seconds: a signal that arrives just before a lock blocks is seen only when the wait ends
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, `kill`, a terminal that was closed


def run(program: str, name: str) -> int:
    """Import the module `program` and call its `main`. Returns the exit status: 1 if a package of an extra is missing,
    or the output cannot be written; `READER_LEFT`.

    `name`: the program's, to stand before the error; also that of its extra, if it has one. `main` has to call
    `catch_interrupts` once it is ready for KeyboardInterrupt.
    """
    die_by_interrupts()
    open_streams()

    def work() -> int:
        try:
            with extras_named(first=name):
                status: int = import_module(program).main()
        except MissingExtra as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        return status

    return _written(name, work)


def _written(name: str, work: Callable[[], int]) -> int:
    """Do `work`, and write all of its output. Returns the exit status of `work`, or the status for lost output."""
    try:
        try:
            status = work()
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # of rich
                raise ended.__context__ from None
            if ended.code is not None and not isinstance(ended.code, int):
                raise
            status = ended.code or 0
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return status
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        with suppress(OSError):
            if error.errno != errno.EPIPE:
                print(f"{name}: the output cannot be written: {error.strerror}", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # else the interpreter would write the buffer at its end, and fail
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return READER_LEFT if error.errno == errno.EPIPE else 1


def open_streams() -> None:
    """Make sure that the file descriptors 0, 1 and 2 are open: else the next file would get one of them, and be taken
    for a terminal, or be printed to. What is printed to one that was closed is dropped."""
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(lowest)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # it stays open
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def die_by_interrupts() -> None:
    """From now on SIGINT ends the process unless the process ignores SIGINT. Call in the main thread only."""
    global _default_action
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _default_action = True


def catch_interrupts() -> None:
    """From now on SIGINT raises KeyboardInterrupt again. Does nothing unless `die_by_interrupts` took effect."""
    global _default_action
    if _default_action:
        _default_action = False
        signal.signal(signal.SIGINT, signal.default_int_handler)


def keep_loaded_objects() -> None:
    """Exclude the objects that exist now, when the program has loaded its models, from garbage collection.

    There are about a hundred thousand of them, and most are needed until the end. To look at them all takes up to a
    tenth of a second, in which no token is drafted and no request is answered.
    """
    gc.freeze()


@contextmanager
def interrupts_held() -> Iterator[list[int]]:
    """A context in which no KeyboardInterrupt is raised, for work that must not be cut: native calls with Python
    callbacks, of which ctypes would drop it, and starts of processes.

    SIGINT and SIGTERM are collected in the list, and the first one is handled at the end. Does nothing outside of the
    main thread, which alone handles signals.
    """
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _frame: held.append(number))
    try:
        yield held
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


class _Ended(BaseException):
    """A signal asks the program to end; raised in the main thread. The argument is the signal's number."""


def run_interruptible(work: Callable[[], T], interrupted: Callable[[], None]) -> T:
    """Call `work`, which a signal can end at once, also while native code loads or compiles a model.

    Returns its result, or raises its exception.

    Python handles a signal only between two of its own instructions, and a compiler's thread pool would first wait for
    its workers. So the work has a thread of its own, and an interrupted program ends by the signal, with that thread.

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
