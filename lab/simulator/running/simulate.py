"""One replication of a configuration."""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.observer import Observer, Sample
from lab.simulator.fleet.record import Record
from lab.simulator.running.setting import MS, setting_of


def seed_of(configuration: Configuration, replication: int) -> int:
    """The seed of a replication; the first is 0. Unlike replications have unlike seeds, and so have unlike `seed`s."""
    digest = hashlib.sha256(f"{configuration.seed}/{replication}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


class Stopped(Exception):
    """Raised by `progress` to end a replication early."""


def simulate(
    configuration: Configuration,
    seed: int,
    observer: Observer,
    progress: Callable[[float], object] = lambda now: None,
    timelines: int = 0,
) -> float:
    """Run a configuration once, for its simulated time. What is under way then is unfinished.

    `seed`: all the chance. The workload and the texts are the same for equal seeds, whatever the fleet.
    `observer`: told of all requests and samples, those of the burn-in included.
    `progress`: called with the simulated seconds so far, at each sample. If it raises Stopped, the run ends there.
    `timelines`: requests at once whose spans are noted, at most.

    Returns how many seconds were simulated.

    Raises BadCost and BadTrace for files that are none of theirs, and CostUnknown for a pass that is too far from what
    a table has.
    """
    conversations = configuration.workload.built().conversations(random.Random(f"{seed}/workload"))
    setting = replace(setting_of(configuration, seed), timelines=timelines)
    fleet = Fleet(setting, conversations, _Watched(observer, progress))
    seconds = configuration.sim_time_ms * MS
    try:
        fleet.run(until=seconds)
    except Stopped:
        seconds = fleet.loop.now
    fleet.interrupt()
    return seconds


class _Watched:
    """An observer, with progress."""

    def __init__(self, observer: Observer, progress: Callable[[float], object]) -> None:
        self._observer, self._progress = observer, progress

    def record(self, record: Record) -> None:
        self._observer.record(record)

    def sample(self, samples: Sequence[Sample]) -> None:
        self._observer.sample(samples)
        self._progress(samples[0].at)
