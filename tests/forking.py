"""Runs programs in processes that are forked from one that has imported what they need: they begin at once."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.paths import ROOT

_PARENT = """
import io, json, os, socket, sys
from importlib import import_module
for name in sys.argv[2:]:
    import_module(name)
asked = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, streams, _, _ = socket.recv_fds(asked, 1 << 17, 3)
    if not message:
        break
    child = os.fork()
    if child == 0:
        asked.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin = open(0)
        sys.stdout, sys.stderr = (io.TextIOWrapper(open(each, "wb", 0), write_through=True) for each in (1, 2))
        run = json.loads(message)
        os.environ.clear()
        os.environ.update(run["environment"])
        os.chdir(run["folder"])
        sys.argv = run["arguments"]
        exec(run["code"], {"__name__": "__main__"})
        break
    for stream in streams:
        os.close(stream)
    asked.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Forking:
    """A process that forks. Used by one thread at a time."""

    def __init__(self, *modules: str) -> None:
        """`modules`: what it imports beforehand."""
        self._asks, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asked:
            command = [sys.executable, "-c", _PARENT, str(asked.fileno()), *modules]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[asked.fileno()])

    def run(
        self, code: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -c CODE ARGUMENTS` in `folder`, to its end."""
        with open(os.devnull, encoding="utf-8") as nothing, ThreadPoolExecutor(2) as threads:
            pipes = [os.pipe(), os.pipe()]
            asked = {"code": code, "arguments": ["-c", *arguments], "folder": str(folder)}
            message = json.dumps(asked | {"environment": dict(environment)}).encode()
            socket.send_fds(self._asks, [message], [nothing.fileno(), *(written for _, written in pipes)])
            for _, written in pipes:
                os.close(written)
            out, err = threads.map(_all, [read for read, _ in pipes])
            return subprocess.CompletedProcess(arguments, int(self._asks.recv(16)), out, err)

    def close(self) -> None:
        self._asks.close()
        assert self._process.wait(20) == 0


def _all(read: int) -> str:
    with open(read, encoding="utf-8") as stream:
        return stream.read()
