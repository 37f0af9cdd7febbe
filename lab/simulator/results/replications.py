"""Replications of configurations, in as many processes as are asked for: what comes of them is the same."""

import csv
import gc
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.fleet.record import FleetObserver, Record
from lab.simulator.results.gathered import Gathered, decided, distinct
from lab.simulator.simulation import Stopped, seed_of, simulate
from specpair.command_line.table import harmless

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
_KEPT = "kept_slo"
REQUESTS = ("replication", *_REQUEST, _KEPT)  # the columns


@contextmanager
def written(
    observer: FleetObserver, configuration: Configuration, folder: Path | None, number: int
) -> Iterator[FleetObserver]:
    """An observer that passes all on, and writes requests to the file of a replication. Raises OSError.

    `number`: of the replication, from 0; files are numbered from 1.
    """
    if folder is None:
        yield observer
        return
    with (folder / f"requests-{number + 1}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, REQUESTS, lineterminator="\n")
        writer.writeheader()
        yield _Writing(observer, configuration, number + 1, writer)


class _Writing:
    def __init__(
        self,
        observer: FleetObserver,
        configuration: Configuration,
        replication: int,
        writer: "csv.DictWriter[str]",
    ) -> None:
        self.sample = observer.sample
        self._observer, self._slo_of, self._replication = observer, configuration.slo_of, replication
        self._writer = writer

    def record(self, record: Record) -> None:
        self._observer.record(record)
        values = {name: value(record) for name, value in _REQUEST.items()}
        decision = decided(record, self._slo_of(record.tenant))
        row = {"replication": self._replication, **values, _KEPT: None if decision is None else decision.kept}
        self._writer.writerow({name: harmless(value) for name, value in row.items()})


Values = dict[str, float]  # measures by name; a value that is not a number is none
Progress = Callable[[float], object]  # takes the simulated seconds so far, of all replications together
Job = tuple[Configuration, int]  # a configuration, and the number of a replication; the first is 0
EvaluateAll = Callable[[Sequence[Job]], Iterable[Values]]  # in the order of the jobs, each as it is there
_REFRESH = 0.2  # seconds between two calls of it, while other processes compute
# New objects until the collector looks among them, and how often it does so until it looks among older and all ones.
# Python's are 700, 10 and 10; all ones, which hold the fleet, are then looked at so often that it takes a fifth.
_THRESHOLDS = (5_000, 4, 4)


@dataclass(frozen=True, slots=True)
class Replication:
    """What came of one."""

    seed: int
    seconds: float  # simulated; fewer than asked for, if it was stopped
    measures: Values
    tenants: dict[str, Values]
    devices: dict[str, Values]  # requests, by the kind of their drafter
    nodes: dict[str, Values]
    series: dict[str, list[float]]  # measures over time, by name


def evaluate(configuration: Configuration, number: int) -> Values:
    """The measures of one replication. Raises what `simulate` raises."""
    gathered = Gathered(configuration)
    simulate(configuration, seed_of(configuration, number), gathered)
    return gathered.measures()


@contextmanager
def evaluation(jobs: int) -> Iterator[EvaluateAll]:
    """What evaluates replications of many configurations, in this context.

    Replications with the same number have the same seed in all configurations, and so the same load (common random
    numbers).
    `jobs`: processes at once. An exception in this context ends them, Ctrl-C too.
    """
    if jobs == 1:
        yield lambda asked: (evaluate(*each) for each in asked)
        return
    with ProcessPoolExecutor(jobs, _CONTEXT, _begin) as pool:

        def all_of(asked: Sequence[Job]) -> Iterator[Values]:
            with _deaf_to_interrupts():
                futures = [pool.submit(evaluate, *each) for each in asked]
            return (each.result() for each in futures)

        try:
            yield all_of
        except BaseException:
            for each in multiprocessing.active_children():  # nobody wants what they compute, which may take long
                each.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def replicated(
    configuration: Configuration,
    *,
    jobs: int = 1,
    folder: Path | None = None,
    progress: Progress = lambda seconds: None,
) -> list[Replication]:
    """Run all replications of a configuration.

    `jobs`: processes at once.
    `folder`: where the files of requests and samples are written; None: nowhere.
    `progress`: if it raises Stopped, those under way end there, and those that have not begun are left out.

    Raises what `simulate` raises, and OSError for a file that cannot be written.
    """
    count, seconds = configuration.replications, configuration.sim_time_ms * MS
    if jobs == 1 or count == 1:
        found: list[Replication] = []
        while len(found) < count and not (found and found[-1].seconds < seconds):
            before = len(found) * seconds
            found.append(_one(configuration, len(found), folder, lambda now, before=before: progress(before + now)))  # type: ignore[misc]
        return found
    shared: Any = _CONTEXT.Array("d", count, lock=False)  # how far each is, in simulated seconds
    stop: Any = _CONTEXT.Event()
    with ProcessPoolExecutor(min(jobs, count), _CONTEXT, _begin, ((shared, stop),)) as pool:
        try:
            with _deaf_to_interrupts():
                futures = [pool.submit(_in_process, configuration, number, folder) for number in range(count)]
            left: set[Future[Replication]] = set(futures)
            while left:
                done, left = wait(left, _REFRESH, FIRST_COMPLETED)
                for each in done:
                    if not each.cancelled():
                        each.result()  # raises its error now, not behind the others
                try:
                    progress(sum(shared))
                except Stopped:
                    stop.set()
                    left = {each for each in left if not each.cancel()}
            return [each.result() for each in futures if not each.cancelled()]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)  # a process that still begins needs `shared`: it is waited for


def _one(configuration: Configuration, number: int, folder: Path | None, progress: Progress) -> Replication:
    seed, gathered = seed_of(configuration, number), Gathered(configuration)
    with written(gathered, configuration, folder, number) as observer:
        seconds = simulate(configuration, seed, observer, progress)
    gathered.ended(seconds)
    return Replication(
        seed,
        seconds,
        measures=gathered.measures(),
        tenants=gathered.tenants(),
        devices=gathered.devices(),
        nodes=gathered.nodes(),
        series=gathered.series(),
    )


# The processes.

_CONTEXT = multiprocessing.get_context("spawn")  # a copy of this process would have its threads' locks
_shared: tuple[Any, Any]  # of a process of `replicated`: how far each replication is, and whether to stop


def collect_seldom() -> None:
    """Have this process spend less time on the search for cycles. Memory stays flat over simulated time.

    What is there by now, modules for the most part, is never looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def _begin(shared: tuple[Any, Any] | None = None) -> None:
    global _shared
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program's own process is interrupted, and ends the others
    if shared is not None:
        _shared = shared


def _in_process(configuration: Configuration, number: int, folder: Path | None) -> Replication:
    seconds, stop = _shared

    def progress(now: float) -> None:
        if stop.is_set():
            raise Stopped
        seconds[number] = now

    return _one(configuration, number, folder, progress)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started in this context never hear of Ctrl-C, also while they import their modules. This
    process hears of it when the context ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
