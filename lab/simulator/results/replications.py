"""The replications of a configuration, in as many processes as are asked for: what comes of them is the same."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.processes import collect_seldom, deaf_to_interrupts
from lab.simulator.results.files import write_timelines, written
from lab.simulator.results.gathered import Gathered
from lab.simulator.results.requests import MS
from lab.simulator.results.timelines import NOTED, Shown
from lab.simulator.running.simulate import Stopped, seed_of, simulate

Values = dict[str, float]
Progress = Callable[[float], object]  # simulated seconds so far, of all replications together
_REFRESH = 0.2  # seconds between two calls of it, while other processes compute


@dataclass(frozen=True, slots=True)
class Replication:
    """What came of one. A value that is not a number is none."""

    seed: int
    seconds: float  # simulated; fewer than asked for, if it was stopped
    measures: Values  # by name
    tenants: dict[str, Values]
    devices: dict[str, Values]  # requests, by the kind of their drafter
    nodes: dict[str, Values]
    series: dict[str, list[float]]  # measures over time: see `Series`
    fidelity: str = ""  # how far drafters by table are off, in one line; "": there are none
    timelines: Sequence[Shown] = ()  # a few requests; they are not in the file of the summary


def evaluate(configuration: Configuration, seed: int) -> Values:
    """The measures of one replication by name. Raises what `simulate` raises."""
    gathered = Gathered(configuration)
    simulate(configuration, seed, gathered)
    return gathered.measures()


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
    numbers = range(configuration.replications)
    if jobs == 1 or len(numbers) == 1:
        seconds = configuration.sim_time_ms * MS

        def one(number: int) -> Replication:
            return _one(configuration, number, folder, lambda now: progress(number * seconds + now))

        found: list[Replication] = []
        while len(found) < len(numbers) and not (found and found[-1].seconds < seconds):
            found.append(one(len(found)))
        return found
    with _Processes(min(jobs, len(numbers)), len(numbers)).pool() as processes:
        with deaf_to_interrupts():
            futures = [processes.submit(configuration, number, folder) for number in numbers]
        left: set[Future[Replication]] = set(futures)
        while left:
            done, left = wait(left, _REFRESH, FIRST_COMPLETED)
            for each in done:
                if not each.cancelled():
                    each.result()  # raises its error now, not behind the others
            try:
                progress(processes.seconds())
            except Stopped:
                processes.stop()
                left = {each for each in left if not each.cancel()}
        return [each.result() for each in futures if not each.cancelled()]


def _one(configuration: Configuration, number: int, folder: Path | None, progress: Progress) -> Replication:
    seed, gathered = seed_of(configuration, number), Gathered(configuration)
    with written(gathered, configuration, folder, number) as observer:
        seconds = simulate(configuration, seed, observer, progress, NOTED)
    gathered.ended(seconds)
    timelines = gathered.timelines()
    if folder is not None:
        write_timelines(timelines, folder, number)
    return Replication(
        seed,
        seconds,
        gathered.measures(),
        gathered.tenants(),
        gathered.devices(),
        gathered.nodes(),
        gathered.series(),
        gathered.fidelity.line(),
        timelines,
    )


class _Processes:
    """Processes that tell how far they are, and stop at their next sample if they are told to."""

    def __init__(self, jobs: int, replications: int) -> None:
        self._context = multiprocessing.get_context("spawn")  # a copy of this process would have its threads' locks
        self._jobs = jobs
        self._seconds: Any = self._context.Array("d", replications, lock=False)
        self._stop: Any = self._context.Event()
        self._pool: ProcessPoolExecutor

    @contextmanager
    def pool(self) -> Iterator["_Processes"]:
        """The processes in this context; at its end they are told to stop."""
        with ProcessPoolExecutor(self._jobs, self._context, _begin, (self._seconds, self._stop)) as self._pool:
            try:
                yield self
            finally:
                self.stop()
                # A process that still begins needs what this one holds: it is waited for.
                self._pool.shutdown(cancel_futures=True)

    def stop(self) -> None:
        """Have those under way stop."""
        self._stop.set()

    def submit(self, configuration: Configuration, number: int, folder: Path | None) -> Future[Replication]:
        return self._pool.submit(_in_process, configuration, number, folder)

    def seconds(self) -> float:
        """How far all are, together."""
        return float(sum(self._seconds))


_shared: tuple[Any, Any]  # of a process of the pool: how far each replication is, and whether to stop


def _begin(seconds: Any, stop: Any) -> None:
    global _shared
    collect_seldom()
    _shared = seconds, stop


def _in_process(configuration: Configuration, number: int, folder: Path | None) -> Replication:
    seconds, stop = _shared

    def progress(now: float) -> None:
        if stop.is_set():
            raise Stopped
        seconds[number] = now

    return _one(configuration, number, folder, progress)
