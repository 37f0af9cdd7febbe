"""The leader's side of tensor parallelism: starts the follower processes, sends them messages and notices their end.

The leader serves requests; over a pipe to each follower it says what to run. A pipe costs microseconds, lets a
follower wait for days (collective operations time out after minutes), and closes when the process at its other end ends
for any reason, so that the end of a process is always noticed. A follower sends one byte when it has started, and the
reason when it fails.
"""

import logging
import os
import pickle
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist

from backends.neuron import NUMBER, show
from specpair.engines.errors import EngineLost, ModelLoadError

LOOPBACK = "127.0.0.1"
STARTED = b"."  # the first byte from a follower: it has started
PASS_AT_MOST = 300.0  # seconds; a longer pass counts as hung, because a stopped process closes no pipe
_LAG = 2.0  # seconds within which the end of a process is noticed
GRACE = 10.0  # seconds that a process gets to end before it is killed
CHECK_EVERY = 5.0  # seconds between checks for a hung pass

_log = logging.getLogger("specpair.torch")


class Team:
    """The follower processes 1 to `size - 1` of this process, the leader. They end when `end` is called or it ends.

    `cores`: the NeuronCores of all processes, the leader's first; None: they run on other devices.
    """

    def __init__(self, size: int, cores: Sequence[int] | None = None) -> None:
        self.size = size
        self.lost: str | None = None  # the reason if a follower is lost: then no pass can run any more
        self._received = dict.fromkeys(range(1, size), b"")  # what each follower has sent
        self._since: float | None = None  # when the forward pass in progress began, by `time.monotonic`
        self._ending = False
        self._changed = threading.Condition()
        # The leader binds the socket, so that no other program can take the port, and only this machine reaches it. The
        # first follower serves the store there: if the leader served it, the leader would wait for lost followers at a
        # store that outlives them.
        with socket.create_server((LOOPBACK, 0)) as server:
            self.port: int = server.getsockname()[1]
            self._processes = {number: _start(number, size, server, cores) for number in self._received}
        self._watcher = threading.Thread(target=self._watch, name="followers", daemon=True)
        self._watcher.start()

    def wait_until_started(self) -> None:
        """Wait until every follower has started. Raises ModelLoadError if one is lost."""
        with self._changed:
            self._changed.wait_for(lambda: self.lost is not None or all(self._received.values()))
        if self.lost is not None:
            raise ModelLoadError(self.lost)

    def tell(self, *message: Any) -> None:
        """Send a message to each follower; followers handle messages in order. If one has ended, `lost` is set soon."""
        packed = pickle.dumps(message)
        for process in self._processes.values():
            assert process.stdin is not None
            with suppress(OSError, ValueError):  # either end of the pipe is closed
                process.stdin.write(packed)
                process.stdin.flush()

    @contextmanager
    def in_pass(self) -> Iterator[None]:
        """Run a forward pass in this context. Raises EngineLost if followers are lost.

        If the pass fails, all followers are given up: how far each came is unknown, so that the next pass would mix up
        their parts.
        """
        self._check()
        self._since = time.monotonic()
        try:
            yield
        except Exception as error:
            if not self.found_lost():
                self._lose(f"a forward pass failed in one of {self.size} processes ({error})")
            self._check()
        finally:
            self._since = None
        self._check()  # an accelerator may return numbers in place of an error when its process group broke up

    def found_lost(self) -> bool:
        """Whether a follower is lost. Waits a moment, since a pass may fail before the follower's end is noticed."""
        with self._changed:
            return self._changed.wait_for(lambda: self.lost is not None, timeout=_LAG)

    def end(self) -> None:
        """End the followers and wait for them. A second call does nothing.

        They end at once, unless they were told "end" before: then they leave the process group and exit in order.
        """
        self._ending = True
        for process in self._processes.values():
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for process in self._processes.values():
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._watcher.join()

    def _check(self) -> None:
        if self.lost is not None:
            raise EngineLost(f"{self.lost}: the model is incomplete, restart to load it again")

    def _watch(self) -> None:
        """Receive what followers send and notice lost or hung ones, in a thread of its own, until all have ended."""
        with selectors.DefaultSelector() as selector:
            for number, process in self._processes.items():
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, number)
            while selector.get_map():
                for key, _ in selector.select(CHECK_EVERY):
                    data = os.read(key.fd, 4096)
                    with self._changed:
                        self._received[key.data] += data
                        self._changed.notify_all()
                    if not data:
                        selector.unregister(key.fileobj)
                        self._ended(key.data)
                since = self._since
                if since is not None and time.monotonic() - since > PASS_AT_MOST and self.lost is None:
                    self._lose(f"a forward pass did not end within {PASS_AT_MOST:.0f} s")

    def _ended(self, number: int) -> None:
        """End all followers because follower `number` has ended, unless its end was expected."""
        output = self._processes[number].stdout
        assert output is not None
        output.close()
        if self._ending or self.lost is not None:
            return
        reason = self._received[number].removeprefix(STARTED).decode(errors="replace")
        if not reason:
            with suppress(subprocess.TimeoutExpired):  # it closed its output without ending: `_lose` kills it
                status = self._processes[number].wait(GRACE)
                reason = f"it ended with {f'signal {-status}' if status < 0 else f'status {status}'}"
        self._lose(f"process {number + 1} of {self.size} is gone: {reason or 'it closed its output'}")

    def _lose(self, reason: str) -> None:
        """Kill all followers and record the reason, since the model is incomplete without one part."""
        with self._changed:
            if self.lost is not None:
                return
            self.lost = reason
            self._changed.notify_all()
        for process in self._processes.values():
            process.kill()
        # Gloo notices that its peers are gone. NCCL would wait for them, and so would the thread that runs the pass.
        if dist.is_initialized() and dist.get_backend() != "gloo":
            dist.distributed_c10d._abort_process_group()
        _log.error("%s", reason)


def ranks(number: int, size: int) -> dict[str, str]:
    """The variables of `torchrun` for process `number`: by LOCAL_RANK, transformers finds the device of a process."""
    names = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {name: str(value) for name, value in names.items()}


def environment_of(
    number: int, size: int, cores: Sequence[int] | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """The environment of follower `number`, based on that of the leader. `cores`: as for `Team`."""
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), *filter(None, [environment.get("PYTHONPATH")])])
    own = {**environment, **ranks(number, size), "PYTHONPATH": path}
    if cores is not None:  # one core a process: TorchNeuron refuses a process group in a process that sees several
        own.pop(NUMBER, None)
        show([cores[number]], own)
    return own


def _start(number: int, size: int, server: socket.socket, cores: Sequence[int] | None) -> "subprocess.Popen[bytes]":
    """Start follower `number`, in a process group of its own: Ctrl-C in a terminal is for the leader, which ends it."""
    bound = [server.fileno()] if number == 1 else []
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "backends.torch.follower", *map(str, [server.getsockname()[1], *bound])],
        pass_fds=bound,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment_of(number, size, cores, os.environ),
        process_group=0,
    )
