"""What a child process of a measurement runs: a program of Python's that ends when its parent does, however that ends.

    python -m benchmarks.child FD -m MODULE [ARGUMENT …]
    python -m benchmarks.child FD -c CODE [ARGUMENT …]

`FD` is the end of a pipe that says nothing; its other end is the parent's alone. So the pipe is at its end when the
parent is, be it by SIGKILL, and then this process ends at once. `benchmarks.children` starts such processes.
"""

import os
import runpy
import sys
import threading

from command_line import start

_COMMANDS = ("drafter_client", "verifier_server")  # they see to Ctrl-C themselves, as soon as they are imported


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
