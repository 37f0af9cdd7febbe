"""The processes that hold the other parts of a model spread over several devices, as the process that serves sees them.

The leader serves; its followers run what it runs, told over a pipe each. A pipe costs microseconds, lets a follower
wait for days (collective operations give up after minutes), and closes with the process at its other end, whatever
ended it: so none outlives another unnoticed. What a follower says goes the other way: one byte once it has begun, and
the reason when it fails.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist

from backends.base import EngineLost, ModelLoadError

LOOPBACK = "127.0.0.1"
HERE = b"."  # what a follower says first
PASS_AT_MOST = 300.0  # seconds; one that takes longer is taken for hung: a stopped process closes no pipe
_LAG = 2.0  # seconds after which a process is seen to be gone, if it is
_PATIENCE = 10.0  # seconds that a process gets to end
_LOOK = 5.0  # seconds between looks at the clock

_log = logging.getLogger("specpair.torch")


class Team:
    """Followers numbered from 1 to `size - 1`; the leader is 0. They end with this object's `end`, or this process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lost: str | None = None  # why there will be no more passes
        self._said = dict.fromkeys(range(1, size), b"")
        self._since: float | None = None  # when the pass under way began
        self._ending = False
        self._news = threading.Condition()
        # Bound before anybody hears of it: nobody else can take the port, and only this machine reaches it. The first
        # follower serves there: were it the leader, it would wait for lost ones at a place that is not gone with them.
        with socket.create_server((LOOPBACK, 0)) as place:
            self.port: int = place.getsockname()[1]
            self._processes = {number: _start(number, size, place) for number in self._said}
        self._watcher = threading.Thread(target=self._watch, name="followers", daemon=True)
        self._watcher.start()

    @property
    def processes(self) -> list[int]:
        """The ids of the followers' processes."""
        return [process.pid for process in self._processes.values()]

    def wait_until_here(self) -> None:
        """Return once each follower has begun. Raises ModelLoadError."""
        with self._news:
            self._news.wait_for(lambda: self.lost is not None or all(self._said.values()))
        if self.lost is not None:
            raise ModelLoadError(self.lost)

    def tell(self, *message: Any) -> None:
        """Have each follower do something after all that it was told before. One that is gone is `lost` soon."""
        packed = pickle.dumps(message)
        for process in self._processes.values():
            assert process.stdin is not None
            with suppress(OSError, ValueError):  # its end of the pipe is closed, or ours
                process.stdin.write(packed)
                process.stdin.flush()

    @contextmanager
    def in_pass(self) -> Iterator[None]:
        """Around a pass. Raises EngineLost where followers are lost, and loses them where the pass fails.

        For then nobody knows how far each has come, and the next pass would mix up their parts.
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
        self._check()  # an accelerator may give numbers, and no error, where its group broke up

    def found_lost(self) -> bool:
        """Whether a follower is gone: what it takes part in may fail a moment before it is seen to be gone."""
        with self._news:
            return self._news.wait_for(lambda: self.lost is not None, timeout=_LAG)

    def end(self) -> None:
        """End the followers, and wait for them. A second time does nothing."""
        self._ending = True
        for process in self._processes.values():
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for process in self._processes.values():
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._watcher.join()

    def _check(self) -> None:
        if self.lost is not None:
            raise EngineLost(f"{self.lost}: the model is incomplete, restart to load it again")

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number, process in self._processes.items():
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, number)
            while selector.get_map():
                for key, _ in selector.select(_LOOK):
                    self._hear(key.data, selector)
                since = self._since
                if since is not None and time.monotonic() - since > PASS_AT_MOST and self.lost is None:
                    self._lose(f"a forward pass did not end within {PASS_AT_MOST:.0f} s")

    def _hear(self, number: int, selector: selectors.BaseSelector) -> None:
        process = self._processes[number]
        assert process.stdout is not None
        said = os.read(process.stdout.fileno(), 4096)
        with self._news:
            self._said[number] += said
            self._news.notify_all()
        if not said:
            selector.unregister(process.stdout)
            process.stdout.close()
            self._gone(number)

    def _gone(self, number: int) -> None:
        if self._ending or self.lost is not None:
            return
        reason = self._said[number].removeprefix(HERE).decode(errors="replace")
        if not reason:
            with suppress(subprocess.TimeoutExpired):  # it closed its output and lives on: it is killed below
                status = self._processes[number].wait(_PATIENCE)
                reason = f"it ended with {f'signal {-status}' if status < 0 else f'status {status}'}"
        self._lose(f"process {number + 1} of {self.size} is gone: {reason or 'it says nothing any more'}")

    def _lose(self, reason: str) -> None:
        """A part of the model is gone, and with it the use of the others."""
        with self._news:
            if self.lost is not None:
                return
            self.lost = reason
            self._news.notify_all()
        for process in self._processes.values():
            process.kill()
        # Gloo notices that its peers are gone. NCCL would wait for them, and so would whoever waits for the device.
        if dist.is_initialized() and dist.get_backend() != "gloo":
            dist.distributed_c10d._abort_process_group()
        _log.error("%s", reason)


def _start(number: int, size: int, place: socket.socket) -> "subprocess.Popen[bytes]":
    """A follower. It gets a process group of its own: Ctrl-C in a terminal is for the leader, which ends it."""
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    # As `torchrun` names them: by LOCAL_RANK, transformers finds the device of a process.
    places = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(size)}
    bound = [place.fileno()] if number == 1 else []
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "backends.torch.worker", *map(str, [place.getsockname()[1], *bound])],
        pass_fds=bound,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **places, "PYTHONPATH": path},
        process_group=0,
    )
