"""Runs a configuration for real: verifiers, a router in front of several, the link, and drafters, a process each.

The workload and the texts are those of the simulation with the same seed. What is not modelled by either: what the
machine does beside. So a run tells how late passes and draft steps ended.
"""

import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from pathlib import Path

from lab.benchmarks.harness.relay import relay
from lab.benchmarks.simulator_reality import processes
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.operation import Link, between
from lab.simulator.configuration.workload import ClosedArrivals
from lab.simulator.fleet.record import Conversation, Record
from specpair.child_processes.serving import serve
from tests.deploy.routers import free_port, our_command, routing

MS = 1e-3
_READY = 300.0  # seconds until all drafters are ready
_LEAD = 0.5  # seconds from the last one's being ready to the beginning
_LATE = 1.03  # mean multiple of a run that does not hold


@dataclass(slots=True)
class Real:
    """The records of a real run, and whether the run is valid."""

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
    """Run a configuration, with all its times unchanged. Raises ValueError for a key without a real counterpart."""
    if len(configuration.devices.drafters) != 1:
        raise ValueError("a real run has drafters of one kind, which are its users' devices in every mode")
    link, found = _link(configuration), Real()
    with tempfile.TemporaryDirectory() as name:
        with _served(configuration, link, Path(name)) as url:
            _run_conversations(configuration, seed, url, found)
        for file in Path(name).glob("late-*.txt"):
            found.late += map(float, file.read_text().splitlines())
    return found


def _link(configuration: Configuration) -> Link:
    """The link to all verifiers."""
    name = configuration.devices.drafters[0].name
    links = {between(configuration.connections, name, each.name) for each in configuration.devices.verifiers}
    if len(links) > 1 or any(each.loss for each in links):
        raise ValueError("a real run has the same link to all verifiers, without loss: loss: 0")
    return links.pop()


@contextmanager
def _served(configuration: Configuration, link: Link, folder: Path) -> Iterator[str]:
    """The address at which drafters reach the verifiers."""
    file = folder / "configuration.json"
    file.write_text(configuration.model_dump_json(exclude_none=True))
    with ExitStack() as stack:
        urls = []
        for number, kind in enumerate(configuration.devices.verifiers):
            for each in range(kind.count):
                environment = processes.environment(file, number, folder / f"late-{number}-{each}.txt")
                served = serve("lab.benchmarks.simulator_reality.processes:application()", environment)
                urls.append(stack.enter_context(served).url)
        url = urls[0]
        if len(urls) > 1:
            port = free_port()
            every = str(configuration.look_every_ms * MS)
            how = ["--policy", configuration.router, "--look-every", every]
            command = our_command(folder, port, [int(each.rpartition(":")[2]) for each in urls])
            url = stack.enter_context(routing([*command, *how], port))
        if link.rtt_ms or link.jitter_ms:
            url = stack.enter_context(relay(url, link.rtt_ms, jitter_ms=link.jitter_ms))
        yield url


def _run_conversations(configuration: Configuration, seed: int, url: str, found: Real) -> None:
    """Give conversations to free drafters as they arrive, until the time is over."""
    workload, end = configuration.workload, configuration.sim_time_ms * MS
    coming, numbers = workload.conversations(random.Random(f"{seed}/workload")), count()
    due: list[tuple[float, int, Conversation]] = []  # when, in seconds since the beginning
    closed = isinstance(workload, ClosedArrivals)

    def ask_next(now: float) -> None:
        if (conversation := next(coming, None)) is not None:
            heappush(due, (max(now, conversation.start) + conversation.turns[0].think, next(numbers), conversation))

    def take(done: "Future[tuple[list[Record], list[float]]]") -> None:
        records, late = done.result()
        found.records += records
        found.late += late

    for _ in range(workload.users if isinstance(workload, ClosedArrivals) else 1):
        ask_next(0.0)
    drafters = configuration.devices.drafters[0].count
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([processes.__name__])
    ready = context.Barrier(drafters + 1, timeout=_READY)
    with ProcessPoolExecutor(drafters, context, processes.begin, (url, configuration, seed, ready)) as pool:
        for _ in range(drafters):
            pool.submit(int)  # a process is started for each: none is free before all are ready
        ready.wait()
        zero, running = time.monotonic() + _LEAD, set[Future[tuple[list[Record], list[float]]]]()
        while (now := time.monotonic() - zero) < end:
            while due and due[0][0] <= now:
                asked, _, conversation = heappop(due)
                running.add(pool.submit(processes.converse, conversation, asked, zero, end))
                if not closed:
                    ask_next(0.0)
            pause = min(due[0][0] if due else end, end) - (time.monotonic() - zero)
            if not running:
                time.sleep(max(0.0, pause))
                continue
            done, running = wait(running, max(0.0, pause), FIRST_COMPLETED)
            for each in done:
                take(each)
                if closed:
                    ask_next(time.monotonic() - zero)
        for each in running:
            if not each.cancel():  # one that is under way ends by itself
                take(each)
