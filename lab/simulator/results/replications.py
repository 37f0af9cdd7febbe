"""Runs replications of configurations in several processes. The results do not depend on their number."""

import csv
import gc
import hashlib
import multiprocessing
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import FleetObserver, Record
from lab.simulator.results.gathered import Gathered, SloDecision, distinct
from specpair.command_line.start import interrupts_held
from specpair.command_line.table import harmless

Values = dict[str, float]  # measures by name; a value that is not a number is none
Job = tuple[Configuration, int]  # a configuration, and the number of a replication; the first is 0
EvaluateAll = Callable[[Sequence[Job]], Iterable[Values]]  # in the order of the jobs, each as it is there
T = TypeVar("T")

_REQUEST: dict[str, Callable[[Record], Any]] = {
    "conversation": lambda record: record.conversation,
    "turn": lambda record: record.turn,
    "tenant": lambda record: record.tenant,
    "device": lambda record: record.device,
    "nodes": lambda record: " ".join(record.nodes),
    "status": lambda record: record.status.value,
    "sent_s": lambda record: record.sent,
    "waited_ms": lambda record: record.waited / MS,
    "ttft_ms": lambda record: record.ttft / MS if record.times else None,
    "tpot_ms": lambda record: record.tpot / MS if len(record.times) > 1 else None,
    "latency_ms": lambda record: (record.end - record.sent) / MS if record.times else None,
    "prompt_tokens": lambda record: record.prompt_tokens,
    "output_tokens": lambda record: len(record.times),
    "wanted_tokens": lambda record: record.output_tokens,
    "rounds": lambda record: max(len(distinct(record.times)) - 1, 0),
    "drafted": lambda record: record.drafted,
    "accepted": lambda record: record.accepted,
}
REQUESTS = ("replication", *_REQUEST, "kept_slo")  # the columns


@dataclass(frozen=True, slots=True)
class Replication:
    """The results of one replication."""

    seed: int
    measures: Values
    tenants: dict[str, Values]
    devices: dict[str, Values]  # requests, by the kind of their drafter
    nodes: dict[str, Values]
    series: dict[str, list[float]]  # measures over time, by name


def seed_of(configuration: Configuration, replication: int) -> int:
    """The seed of a replication, from 0. Different replications and different `seed`s have different seeds."""
    digest = hashlib.sha256(f"{configuration.seed}/{replication}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def simulate(configuration: Configuration, seed: int, observer: FleetObserver) -> None:
    """Run a configuration once, for its simulated time. Requests under way then are unfinished.

    `seed`: all the chance. The workload and the texts are the same for equal seeds, whatever the fleet.
    `observer`: told of all requests and samples, those of the burn-in included.

    Raises BadTrace for a file that is none, and CostUnknown for a pass that is too far from what a table has.
    """
    conversations = configuration.workload.conversations(random.Random(f"{seed}/workload"))
    fleet = Fleet(configuration, seed, conversations, observer)
    fleet.run(until=configuration.sim_time_ms * MS)
    fleet.interrupt()


def evaluate(configuration: Configuration, number: int) -> Values:
    """The measures of one replication. Raises what `simulate` raises."""
    gathered = Gathered(configuration)
    simulate(configuration, seed_of(configuration, number), gathered)
    return gathered.measures()


def replicate(configuration: Configuration, number: int, folder: Path) -> Replication:
    """One replication, whose requests are written to a file in the folder.

    Raises what `simulate` raises, and OSError for a file that cannot be written.
    """
    seed, gathered = seed_of(configuration, number), Gathered(configuration)
    simulate(configuration, seed, gathered)
    write_requests(gathered.records, folder, number)
    groups = {"tenants": gathered.tenants(), "devices": gathered.devices(), "nodes": gathered.nodes()}
    return Replication(seed, gathered.measures(), **groups, series=gathered.series())


def write_requests(records: Iterable[tuple[Record, SloDecision | None]], folder: Path, number: int) -> None:
    """Write the requests of a replication. Raises OSError. `number`: from 0; files are numbered from 1."""
    with (folder / f"requests-{number + 1}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(REQUESTS)
        for record, decision in records:
            values = (number + 1, *(value(record) for value in _REQUEST.values()), decision and decision.kept)
            writer.writerow(map(harmless, values))


# The processes.

_CONTEXT = multiprocessing.get_context("spawn")  # a copy of this process would have its threads' locks
# New objects until the collector looks among them, and how often it does so until it looks among older and all ones.
# Python's are 700, 10 and 10; all ones, which hold the fleet, are then looked at so often that it takes a fifth.
_THRESHOLDS = (5_000, 4, 4)


@contextmanager
def processes(jobs: int, do: Callable[[Configuration, int], T]) -> Iterator[Callable[[Sequence[Job]], Iterable[T]]]:
    """What does `do` for many replications, in this context: gives the results in the order of the jobs.

    Replications with the same number have the same seed in all configurations, and so the same load (common random
    numbers).
    `jobs`: processes at once. An exception in this context ends them, Ctrl-C too.
    """
    if jobs == 1:
        yield lambda asked: (do(*each) for each in asked)
        return
    with ProcessPoolExecutor(jobs, _CONTEXT, _begin) as pool:

        def all_of(asked: Sequence[Job]) -> Iterator[T]:
            with _deaf_to_interrupts():
                futures = [pool.submit(do, *each) for each in asked]
            return (each.result() for each in futures)

        try:
            yield all_of
        except BaseException:
            for each in multiprocessing.active_children():  # nobody wants what they compute, which may take long
                each.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def collect_seldom() -> None:
    """Make garbage collection rarer in this process. Memory stays flat over simulated time.

    What is there by now, modules for the most part, is never looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def _begin() -> None:
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program's own process is interrupted, and ends the others


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started in this context never hear of Ctrl-C, also while they import their modules. This
    process hears of it when the context ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # The mask is for the new processes. In this process another thread may take the signal, and Python would raise
    # here, between the start of a process and what it is sent.
    with interrupts_held():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
