"""The CSV file of a replication: requests as they end."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.fleet.record import FleetObserver, Record
from lab.simulator.results.requests import decided, distinct
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
