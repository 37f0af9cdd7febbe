"""CSV files of a replication: requests and samples as they come."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.fleet.record import FleetObserver, Record, Sample
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
REQUESTS = ("replication", *_REQUEST, _KEPT)
SAMPLES = ("replication", *(each.name for each in fields(Sample)))


@contextmanager
def written(
    observer: FleetObserver, configuration: Configuration, folder: Path | None, number: int
) -> Iterator[FleetObserver]:
    """An observer that passes all on, and writes it to the files of a replication. Raises OSError.

    `number`: of the replication, from 0; files are numbered from 1.
    """
    if folder is None:
        yield observer
        return
    with ExitStack() as stack:
        requests = _table(folder / f"requests-{number + 1}.csv", REQUESTS, stack)
        samples = _table(folder / f"samples-{number + 1}.csv", SAMPLES, stack)
        yield _Writing(observer, configuration, number + 1, requests, samples)


Write = Callable[[Mapping[str, Any]], object]  # takes a row


class _Writing:
    def __init__(
        self, observer: FleetObserver, configuration: Configuration, replication: int, requests: Write, samples: Write
    ) -> None:
        self._observer, self._slo_of, self._replication = observer, configuration.slo_of, replication
        self._requests, self._samples = requests, samples

    def record(self, record: Record) -> None:
        self._observer.record(record)
        values = {name: value(record) for name, value in _REQUEST.items()}
        decision = decided(record, self._slo_of(record.tenant))
        kept = None if decision is None else decision.kept
        self._requests({"replication": self._replication, **values, _KEPT: kept})

    def sample(self, samples: Sequence[Sample]) -> None:
        self._observer.sample(samples)
        for each in samples:
            self._samples({"replication": self._replication, **asdict(each)})


def _table(path: Path, columns: Sequence[str], stack: ExitStack) -> Write:
    writer = csv.DictWriter(
        stack.enter_context(path.open("w", encoding="utf-8", newline="")), columns, lineterminator="\n"
    )
    writer.writeheader()
    return lambda row: writer.writerow({name: harmless(value) for name, value in row.items()})
