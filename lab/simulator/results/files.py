"""Files of a run: requests and samples as they come, as CSV and as Parquet, so that memory does not grow with them."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.observer import Observer, Sample
from lab.simulator.fleet.record import Record
from lab.simulator.results.requests import MS, decided, distinct
from lab.simulator.results.timelines import Shown
from lab.simulator.virtual.timeline import Span
from specpair.command_line.table import harmless
from specpair.extras import installing

_GROUP = 4096  # rows that are held until a group of a Parquet file is written
# The columns of requests: their type, and their value.
_REQUEST: dict[str, tuple[type, Callable[[Record], Any]]] = {
    "conversation": (str, lambda record: record.conversation),
    "turn": (int, lambda record: record.turn),
    "tenant": (str, lambda record: record.tenant),
    "device": (str, lambda record: record.device),
    "nodes": (str, lambda record: " ".join(record.nodes)),
    "status": (str, lambda record: record.status.value),
    "sent_s": (float, lambda record: record.sent),
    "waited_ms": (float, lambda record: record.waited / MS),
    "ttft_ms": (float, lambda record: record.ttft / MS if record.times else None),
    "tpot_ms": (float, lambda record: record.tpot / MS if len(record.times) > 1 else None),
    "latency_ms": (float, lambda record: (record.end - record.sent) / MS if record.times else None),
    "prompt_tokens": (int, lambda record: record.prompt_tokens),
    "output_tokens": (int, lambda record: len(record.times)),
    "wanted_tokens": (int, lambda record: record.output_tokens),
    "rounds": (int, lambda record: max(len(distinct(record.times)) - 1, 0)),
    "drafted": (int, lambda record: record.drafted),
    "accepted": (int, lambda record: record.accepted),
}
_KEPT = "kept_slo"
# The columns of timelines, likewise: of each span. Times are those since the request was sent.
_SPAN: dict[str, tuple[type, Callable[[Shown, Span], Any]]] = {
    "why": (str, lambda shown, span: shown.why),
    "conversation": (str, lambda shown, span: shown.record.conversation),
    "turn": (int, lambda shown, span: shown.record.turn),
    "lane": (str, lambda shown, span: span.what.lane.value),
    "what": (str, lambda shown, span: span.what.value),
    "node": (str, lambda shown, span: span.node),
    "begin_ms": (float, lambda shown, span: (span.begin - shown.record.sent) / MS),
    "end_ms": (float, lambda shown, span: (span.end - shown.record.sent) / MS),
    "tokens": (int, lambda shown, span: span.tokens),
    "proposed": (int, lambda shown, span: span.proposed),
    "accepted": (int, lambda shown, span: span.accepted),
    "committed": (int, lambda shown, span: span.committed),
    "rows": (int, lambda shown, span: span.rows),
}
REQUESTS = {"replication": int, **{name: kind for name, (kind, _) in _REQUEST.items()}, _KEPT: bool}
TIMELINES = {"replication": int, **{name: kind for name, (kind, _) in _SPAN.items()}}
SAMPLES = {"replication": int, **get_type_hints(Sample)}


def no_parquet() -> str | None:
    """Why there are no Parquet files, and how to get them; None: there are."""
    return None if find_spec("pyarrow") else f"no Parquet files, which need pyarrow: {installing('parquet')}"


@contextmanager
def written(observer: Observer, configuration: Configuration, folder: Path | None, number: int) -> Iterator[Observer]:
    """An observer that passes all on, and writes it to the files of a replication. Raises OSError.

    `number`: of the replication, from 0; files are numbered from 1.
    """
    if folder is None:
        yield observer
        return
    with ExitStack() as stack:
        requests = _table(folder / f"requests-{number + 1}", REQUESTS, stack)
        samples = _table(folder / f"samples-{number + 1}", SAMPLES, stack)
        yield _Writing(observer, configuration, number + 1, requests, samples)


def write_timelines(several: Sequence[Shown], folder: Path, number: int) -> None:
    """Write the files of timelines of a replication. Raises OSError.

    `number`: of the replication, from 0.
    """
    with ExitStack() as stack:
        writers = _table(folder / f"timelines-{number + 1}", TIMELINES, stack)
        for shown in several:
            for span in shown.spans:
                row = {name: value(shown, span) for name, (_, value) in _SPAN.items()}
                for each in writers:
                    each.write({"replication": number + 1, **row})


class _Writer(Protocol):
    def write(self, row: Mapping[str, Any]) -> None: ...


class _Writing:
    def __init__(
        self,
        observer: Observer,
        configuration: Configuration,
        replication: int,
        requests: Sequence[_Writer],
        samples: Sequence[_Writer],
    ) -> None:
        self._observer, self._slo_of, self._replication = observer, configuration.slo_of, replication
        self._requests, self._samples = requests, samples

    def record(self, record: Record) -> None:
        self._observer.record(record)
        values = {name: value(record) for name, (_, value) in _REQUEST.items()}
        decision = decided(record, self._slo_of(record.tenant))
        row = {"replication": self._replication, **values, _KEPT: None if decision is None else decision.kept}
        for each in self._requests:
            each.write(row)

    def sample(self, samples: Sequence[Sample]) -> None:
        self._observer.sample(samples)
        for sample in samples:
            row = {
                "replication": self._replication,
                **asdict(sample),
            }
            for writer in self._samples:
                writer.write(row)


def _table(path: Path, columns: Mapping[str, type], stack: ExitStack) -> list[_Writer]:
    """A CSV file, and a Parquet file where pyarrow is installed."""
    writers: list[_Writer] = [stack.enter_context(_csv(path.with_name(f"{path.name}.csv"), columns))]
    if no_parquet() is None:
        writers.append(stack.enter_context(_parquet(path.with_name(f"{path.name}.parquet"), columns)))
    return writers


class _Csv:
    def __init__(self, writer: "csv.DictWriter[str]") -> None:
        self._writer = writer

    def write(self, row: Mapping[str, Any]) -> None:
        self._writer.writerow({name: harmless(value) for name, value in row.items()})


@contextmanager
def _csv(path: Path, columns: Mapping[str, type]) -> Iterator[_Writer]:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*columns], lineterminator="\n")
        writer.writeheader()
        yield _Csv(writer)


class _Parquet:
    def __init__(self, writer: Any, schema: Any) -> None:
        self._writer, self._schema = writer, schema
        self._rows: list[Mapping[str, Any]] = []

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) == _GROUP:
            self.flush()

    def flush(self) -> None:
        import pyarrow

        if self._rows:
            self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


@contextmanager
def _parquet(path: Path, columns: Mapping[str, type]) -> Iterator[_Writer]:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    with ParquetWriter(str(path), schema) as writer:
        parquet = _Parquet(writer, schema)
        yield parquet
        parquet.flush()
