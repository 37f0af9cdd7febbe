"""Runs a Python program that ends as soon as its parent process has ended, however that ended.

    python -m child_processes.child FD -m MODULE [ARGUMENT …]
    python -m child_processes.child FD -c CODE [ARGUMENT …]

`FD` is the read end of a pipe that carries no data and whose write end only the parent has. End of file on it means
that the parent is gone, be it by SIGKILL. `child_processes.children` starts such processes.
"""

import os
import runpy
import sys
import threading

from command_line import start

_COMMANDS = ("drafter_client", "verifier_server")  # these handle Ctrl-C themselves once they are imported


def _end_with_parent(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os._exit(1)


def main() -> None:
    pipe, how, what, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with_parent, args=(int(pipe),), name="parent", daemon=True).start()
    sys.argv = [what, *arguments]
    if how == "-m":
        if what in _COMMANDS:
            start.die_by_interrupts()
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<child>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
