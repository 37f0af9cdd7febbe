"""The first moments of a command, while its modules are imported: Ctrl-C then ends it at once and without a word.

Python's own handler would raise KeyboardInterrupt in the midst of an import, and show where. So the module that is run
is a light one, which imports this first and the program itself through it.
"""

import signal
from importlib import import_module

_dies = False  # whether SIGINT is as the system has it


def run(program: str) -> int:
    """Call `main` of that module, which calls `catch_interrupts` once it is ready for KeyboardInterrupt."""
    die_by_interrupts()
    status: int = import_module(program).main()
    return status


def die_by_interrupts() -> None:
    """From now on SIGINT ends the process, unless it is ignored. In the main thread alone."""
    global _dies
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _dies = True


def catch_interrupts() -> None:
    """From now on SIGINT is a KeyboardInterrupt again. Does nothing where it was not another way."""
    global _dies
    if _dies:
        _dies = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
