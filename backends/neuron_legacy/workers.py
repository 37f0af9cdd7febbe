"""The processes in which transformers-neuronx compiles: how many there are, and that none outlives this one.

The library forks them, and each runs the compiler, a program of its own, for one model program after the other. Left to
themselves they would go on when a server is stopped, with all that they inherit: its sockets, so that the port stays
taken, and its handlers of signals, so that they do not end when they are told to.
"""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

from backends.machine import available_bytes, cores

# Host memory that the compiler takes for a layer of a program. A guess, on the safe side: nine programs of 32 layers at
# once are reported to exhaust 32 GiB.
_BYTES_A_LAYER: Final = 256 * 2**20
_KILLED: Final = ("[F137]", "forcibly killed")  # in the compiler's error if the system ended it, mostly for its memory

_pair: tuple[socket.socket, socket.socket] | None = None  # this process's end and the workers', while they are forked


def workers_for(layers: int, programs: int) -> int:
    """Programs of `layers` layers to compile at a time, by this machine's cores and free memory."""
    return max(1, min(programs, cores(), available_bytes() // (layers * _BYTES_A_LAYER)))


def lacked_memory(error: BaseException) -> bool:
    """Whether a compilation failed because the system killed a worker or its compiler."""
    return isinstance(error, BrokenProcessPool) or any(mark in str(error) for mark in _KILLED)


@contextmanager
def ending_with_this_process() -> Iterator[None]:
    """A context in which forked processes end as soon as this process has ended, with all that they start in their
    process group.

    They also end with the context. Only one thread at a time may be in it.
    """
    global _pair
    _prepare_forks()
    _pair = socket.socketpair()
    ours, theirs = _pair
    try:
        yield
    finally:
        _pair = None
        theirs.close()
        with ours:
            groups = _received(ours)
        for group in groups:
            with suppress(ProcessLookupError):  # as it should be: else a worker was killed, and its compiler was not
                os.killpg(group, signal.SIGKILL)


@cache
def _prepare_forks() -> None:
    os.register_at_fork(after_in_child=_in_worker)


def _in_worker() -> None:
    """Called in each forked process. What it starts shares its process group, unless it asks for another one."""
    global _pair
    if _pair is None:
        return
    ours, theirs = _pair
    _pair = None
    ours.close()  # then only the parent has it, and `theirs` is at its end when the parent is
    os.setpgid(0, 0)  # Ctrl-C in a terminal is for the parent
    theirs.sendall(f"{os.getpid()}\n".encode())
    signal.set_wakeup_fd(-1)  # else its signals would wake the parent's event loop
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(theirs,), name="parent", daemon=True).start()


def _end_with_parent(theirs: socket.socket) -> None:
    with suppress(ConnectionError):
        theirs.recv(1)  # returns when the parent has ended
    os.killpg(0, signal.SIGKILL)


def _received(ours: socket.socket) -> list[int]:
    """The process groups of the workers."""
    ours.setblocking(False)
    told = b""
    with suppress(BlockingIOError):
        while part := ours.recv(4096):
            told += part
    return [int(line) for line in told.splitlines()]
