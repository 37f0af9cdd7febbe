"""Runs a configuration for real: verifiers, a router in front of several, the link, and drafters, a process each.

The workload and the texts are those of the simulation with the same seed. What is not modelled by either: what the
machine does beside. So a run tells how late passes and draft steps ended.
"""

import multiprocessing
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from lab.benchmarks.harness.relay import relay
from lab.benchmarks.simulator_reality import drafter, verifier
from lab.benchmarks.simulator_reality.arrivals import Arrivals
from lab.benchmarks.simulator_reality.drafter import Begin, Report, Work
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.connections import Link, between
from lab.simulator.fleet.record import Record
from specpair.child_processes.serving import serve
from tests.deploy.routers import free_port, our_command, routing

MS = 1e-3
_READY, _GRACE = 300.0, 20.0  # seconds until a drafter is ready, and in which one ends
_LEAD = 0.5  # seconds from the last one's being ready to the beginning
_LATE = 1.03  # mean multiple of a run that does not hold


@dataclass(slots=True)
class Real:
    """What happened, and whether it holds."""

    records: list[Record] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # of each pass and draft step, as a multiple of its cost

    @property
    def lateness(self) -> float:
        """The mean multiple."""
        return sum(self.late) / len(self.late)

    @property
    def void(self) -> bool:
        return self.lateness > _LATE


def run(configuration: Configuration, seed: int) -> Real:
    """Run a configuration, with all its times as they stand. Raises ValueError for what has no real counterpart."""
    _check(configuration)
    found = Real()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ExitStack() as servers:
            url = servers.enter_context(_served(configuration, folder))
            drafters = [_Drafter(url, configuration, seed, servers) for _ in range(_count(configuration))]
            _conduct(configuration, seed, drafters, found)
        for file in folder.glob("late-*.txt"):
            found.late += map(float, file.read_text().splitlines())
    return found


def _check(configuration: Configuration) -> None:
    if len(configuration.devices.drafters) != 1:
        raise ValueError("a real run has drafters of one kind, which are its users' devices in every mode")
    if configuration.failures or configuration.autoscaling:
        raise ValueError("a real run has no failures and no autoscaling")
    _link(configuration)


def _link(configuration: Configuration) -> Link:
    """The link to all verifiers."""
    name = configuration.devices.drafters[0].name
    links = {between(configuration.connections, name, each.name)[0] for each in configuration.devices.verifiers}
    if len(links) > 1 or any(each.loss for each in links):
        raise ValueError("a real run has the same link to all verifiers, without loss: loss: 0")
    return links.pop()


def _count(configuration: Configuration) -> int:
    return configuration.devices.drafters[0].count


@contextmanager
def _served(configuration: Configuration, folder: Path) -> Iterator[str]:
    """The address at which drafters reach the verifiers."""
    file = folder / "configuration.json"
    file.write_text(configuration.model_dump_json(exclude_none=True))
    kinds = configuration.devices.verifiers
    with ExitStack() as stack:
        urls = []
        for number, kind in enumerate(kinds):
            for each in range(kind.count):
                environment = verifier.environment(file, number, folder / f"late-{number}-{each}.txt")
                served = serve("lab.benchmarks.simulator_reality.verifier:application()", environment)
                urls.append(stack.enter_context(served).url)
        url = urls[0]
        if len(urls) > 1:
            port = free_port()
            every = str(configuration.look_every_ms * MS)
            how = ["--policy", configuration.router, "--look-every", every]
            command = our_command(folder, port, [int(each.rpartition(":")[2]) for each in urls])
            url = stack.enter_context(routing([*command, *how], port))
        link = _link(configuration)
        if link.rtt_ms or link.jitter_ms:
            url = stack.enter_context(relay(url, link.rtt_ms, jitter_ms=link.jitter_ms))
        yield url


class _Drafter:
    """A drafter's process, as the conductor sees it."""

    def __init__(self, url: str, configuration: Configuration, seed: int, stack: ExitStack) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([drafter.__name__])
        self.pipe, theirs = context.Pipe()
        stack.callback(self.pipe.close)
        self._process: ForkServerProcess = context.Process(
            target=drafter.main, args=(url, configuration, seed, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        stack.callback(self._end)

    def _end(self) -> None:
        self._process.join(_GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _conduct(configuration: Configuration, seed: int, drafters: list[_Drafter], found: Real) -> None:
    """Give conversations to drafters until the time is over, and collect what they tell."""
    pipes = [each.pipe for each in drafters]
    for pipe in pipes:
        if not pipe.poll(_READY):
            raise RuntimeError(f"a drafter was not ready after {_READY:g} s")
        pipe.recv()
    end = configuration.sim_time_ms * MS
    zero = time.monotonic() + _LEAD
    for pipe in pipes:
        pipe.send(Begin(zero, end))
    work = Arrivals(configuration, seed)
    free: deque[Connection] = deque(pipes)
    waiting: deque[Work] = deque()
    while (now := time.monotonic() - zero) < end:
        waiting.extend(work.until(now))
        while free and waiting:
            free.popleft().send(waiting.popleft())
        for ready in wait(pipes, max(0.0, min(work.due, end) - now)):
            assert isinstance(ready, Connection)
            told = ready.recv()
            if isinstance(told, Record):
                found.records.append(told)
            else:
                free.append(ready)
                work.over(time.monotonic() - zero)
    _collect(drafters, found)


def _collect(drafters: list[_Drafter], found: Real) -> None:
    """End all drafters, and take what they have still to tell."""
    until = time.monotonic() + _GRACE
    for each in drafters:
        # One that was in the middle of a conversation has ended by itself, and what it told is still in its pipe.
        with suppress(BrokenPipeError):
            each.pipe.send(None)
    for each in drafters:
        try:
            while each.pipe.poll(max(0.0, until - time.monotonic())):
                told = each.pipe.recv()
                if isinstance(told, Record):
                    found.records.append(told)
                elif isinstance(told, Report):
                    found.late += told.late
                    break
        except EOFError:
            raise RuntimeError("a drafter's process has ended with an error: see above") from None
