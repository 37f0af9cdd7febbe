"""Starts a program so that Ctrl-C during its imports ends it at once and silently, and a missing package in one line.

Python's own handler would raise KeyboardInterrupt within an import and print a traceback. Therefore each entry module
is small: it imports this module first, which then imports the program itself.
"""

import gc
import signal
import sys
from importlib import import_module

from specpair.extras import MissingExtra, extras_named

_default_action = False  # whether `die_by_interrupts` gave SIGINT the system's default action


def run(program: str, name: str) -> int:
    """Import the module `program` and call its `main`. Returns the exit status: 1 if a package of an extra is missing.

    `name`: the program's, to stand before the error; also that of its extra, if it has one. `main` has to call
    `catch_interrupts` once it is ready for KeyboardInterrupt.
    """
    die_by_interrupts()
    try:
        with extras_named(first=name):
            status: int = import_module(program).main()
    except MissingExtra as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return status


def die_by_interrupts() -> None:
    """From now on SIGINT ends the process, unless the process ignores it. Call in the main thread only."""
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
