"""Runs programs in processes that are forked from one that has imported what they need: they begin at once."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO

from tests.paths import ROOT

# Reads what is asked for with the streams of the program and a socket for its id and its exit status; then forks.
_PARENT = """
import io, json, os, runpy, select, signal, socket, sys
from importlib import import_module
for name in sys.argv[2:]:
    import_module(name)

def become(run, streams):
    if run["terminal"]:
        os.setsid()
        streams = 3 * [os.open(run["terminal"], os.O_RDWR)]  # the leader of a session gets it as controlling terminal
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for each in (asked, *(told for _, told in running.values())):
        each.detach()
    os.closerange(3, 1024)
    sys.stdin, sys.stdout = open(0), io.TextIOWrapper(open(1, "wb", 0), write_through=True)
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0), errors="backslashreplace", write_through=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(run["environment"])
    os.chdir(run["folder"])
    sys.path[0] = ""
    how, what, *arguments = run["arguments"]
    sys.argv = [how, *arguments]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})

asked = socket.socket(fileno=int(sys.argv[1]))
running = {}
while True:
    for ready in select.select([asked, *running], [], [])[0]:
        if ready is not asked:
            child, told = running.pop(ready)
            told.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            told.close()
            os.close(ready)
            continue
        message, given, _, _ = socket.recv_fds(asked, 1 << 17, 4)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            break
        told = socket.socket(fileno=given[3])
        told.send(b"%d" % child)
        running[os.pidfd_open(child)] = child, told
        for stream in given[:3]:
            os.close(stream)
    else:
        continue
    break
become(json.loads(message), given[:3])
"""
Stream = int | IO[str] | None  # as `subprocess.Popen` takes them


class Forked:
    """A program that runs: what is used of a `subprocess.Popen`. Its output is text."""

    def __init__(
        self, pid: int, told: socket.socket, arguments: Sequence[str], stdout: IO[str] | None, stderr: IO[str] | None
    ) -> None:
        self.pid, self.args, self.stdout, self.stderr = pid, arguments, stdout, stderr
        self.returncode: int | None = None
        self._told = told

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status at its end. Raises subprocess.TimeoutExpired."""
        status = self._status(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired([*self.args], timeout)
        return status

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of its output and of its errors, after its end."""
        with ThreadPoolExecutor(2) as threads:
            out, err = (threads.submit(_rest, each) for each in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return out.result(), err.result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> bool:
        poll = select.poll()  # `select` takes no descriptors from 1,024 on
        poll.register(self._told, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(0.0, 1e3 * timeout)))

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._ended(timeout):
            self.returncode = int(self._told.recv(16))
            self._told.close()
        return self.returncode


class Forking:
    """A process that forks."""

    def __init__(self, *modules: str) -> None:
        """`modules`: what it imports beforehand."""
        self._asks, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asked:
            command = [sys.executable, "-c", _PARENT, str(asked.fileno()), *modules]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[asked.fileno()])

    def start(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stdout: Stream = None,
        stderr: Stream = None,
        terminal: str = "",
    ) -> Forked:
        """Start what `python ARGUMENTS` starts, which begin with -c or -m, in `folder`.

        `terminal`: the path of a terminal that its three streams are, as the leader of a session.
        """
        here, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = {"arguments": [*arguments], "folder": str(folder), "terminal": terminal}
        message = json.dumps(asked | {"environment": dict(environment)}).encode()
        with told, open(os.devnull, "r+b", buffering=0) as nothing:
            ends = [_end(each, number, nothing.fileno()) for number, each in ((1, stdout), (2, stderr))]
            socket.send_fds(self._asks, [message], [nothing.fileno(), *(end for _, end in ends), told.fileno()])
            for read, end in ends:
                if read is not None:
                    os.close(end)
        out, err = (None if read is None else os.fdopen(read, encoding="utf-8") for read, _ in ends)
        return Forked(int(here.recv(16)), here, arguments, out, err)

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run what `start` starts to its end."""
        forked = self.start(arguments, folder, environment, subprocess.PIPE, subprocess.PIPE)
        out, err = forked.communicate()
        return subprocess.CompletedProcess(arguments, forked.wait(), out, err)

    def close(self) -> None:
        self._asks.close()
        assert self._process.wait(20) == 0


def _rest(stream: IO[str] | None) -> str:
    """What comes from a stream up to its end; it is closed."""
    if stream is None or stream.closed:
        return ""
    with stream:
        return stream.read()


def _end(stream: Stream, number: int, nothing: int) -> tuple[int | None, int]:
    """The end of a pipe that is read here, if it is one, and what the program writes to."""
    if stream == subprocess.PIPE:
        return os.pipe()
    if stream == subprocess.DEVNULL:
        return None, nothing
    if stream is None:
        return None, number
    return None, stream if isinstance(stream, int) else stream.fileno()


Process = subprocess.Popen[str] | Forked


_making = threading.Lock()  # else threads that start the first programs at once make a process each


def programs() -> Forking:
    """A process that has imported both ends. It ends with this one."""
    with _making:
        return _programs()


@cache
def _programs() -> Forking:
    forking = Forking("verifier_server.app", "verifier_server.program", "uvicorn.main", "drafter_client.cli.commands")
    atexit.register(forking.close)
    return forking


def is_python(command: Sequence[str]) -> bool:
    """Whether `programs` can start the command."""
    return sys.platform == "linux" and command[0] == sys.executable and command[1] in ("-c", "-m")


def started(command: Sequence[str], variables: Mapping[str, str], stdout: int, folder: Path = ROOT) -> Process:
    """A program whose errors are read: forked from one that has imported both ends, if it is Python."""
    if is_python(command):
        return programs().start(command[1:], folder, variables, stdout, subprocess.PIPE)
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=stdout, stderr=subprocess.PIPE, text=True)
