"""A folder of profiles: three tables that grow by each run, and one JSON object for each with all there is to say."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drafter_client.metrics.statistics import Stats
from drafter_client.trace.appending import append, unwritable
from drafter_client.trace.recorder import Recorder
from drafter_client.trace.schema import ROUNDS, RUNS, TABLES, TOKENS, TraceTable

SCHEMA = 1  # of the JSON files


class TraceFolder:
    """Writes to one folder, which is made if missing. Several runs may, side by side, also from several processes."""

    def __init__(self, folder: Path, today: Callable[[], datetime] = lambda: datetime.now(tz=UTC)) -> None:
        """`today`: the time of day, with its zone. Raises ProfileError where nothing can be written.

        That is found out here and not when a long run is over.
        """
        self._folder, self._today = folder, today
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, error) from None
        for table in TABLES:
            append(folder / table.file, table.header)

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any] | None = None) -> Iterator[Recorder]:
        """An observer for one text, which is written when the block is left: however, and with `stats` as of then.

        `settings`: what was asked for; JSON. Raises ProfileError where it cannot be written.
        """
        started, recorder, broken_by = self._today(), Recorder(), None
        try:
            yield recorder
        except GeneratorExit:  # whoever read the text wants no more of it
            raise
        except BaseException as error:
            broken_by = type(error).__name__
            raise
        finally:
            head = {"started": started.astimezone(UTC).isoformat(timespec="milliseconds"), "error": broken_by}
            self._write(head, settings or {}, stats, recorder)

    def _write(self, head: dict[str, Any], settings: Mapping[str, Any], stats: Stats, recorder: Recorder) -> None:
        figures, rounds, tokens = stats.figures(), recorder.rounds(), _of_the_text(recorder.tokens(), stats)
        whole = {
            **head,
            "settings": dict(settings),
            "figures": figures,
            "prefills": recorder.prefills(),
            "rounds": rounds,
            "steps": recorder.steps(),
            "own_passes": recorder.own_passes(),
            "tokens": tokens,
        }
        try:
            number = self._take_number()
            text = json.dumps({"schema": SCHEMA, "run": number, **whole})
            run_file(self._folder, number).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise unwritable(self._folder, error) from None
        # The line in `runs.csv` last: whatever is named there is written.
        self._append(ROUNDS, number, rounds)
        self._append(TOKENS, number, tokens)
        self._append(RUNS, number, [head | _flat(figures)])

    def _append(self, table: TraceTable, number: int, rows: list[dict[str, Any]]) -> None:
        append(self._folder / table.file, table.header, table.lines({"run": number, **row} for row in rows))

    def _take_number(self) -> int:
        """The next that nobody has: by making its file, which only one can."""
        there = (re.fullmatch(r"run-([0-9]{1,9})\.json", path.name) for path in self._folder.iterdir())
        number = 1 + max((int(match[1]) for match in there if match), default=0)
        while True:
            try:
                run_file(self._folder, number).touch(exist_ok=False)
                return number
            except FileExistsError:
                number += 1


def run_file(folder: Path, number: int) -> Path:
    """Where all of one run is."""
    return folder / f"run-{number}.json"


def _flat(figures: dict[str, Any]) -> dict[str, Any]:
    """Columns of `runs.csv`, out of what `--json` prints."""
    sampling = figures["sampling"] if isinstance(figures["sampling"], dict) else {}
    asked = {name: sampling.get(name) for name in ("strategy", "threshold", "temperature", "top_k", "top_p", "seed")}
    times = {f"{name}_ms": took for name, took in figures["times_ms"].items()}
    return figures | asked | times


def _of_the_text(rows: list[dict[str, Any]], stats: Stats) -> list[dict[str, Any]]:
    """One for each token of the text, in order: in mode `auto` more may have been known than was taken."""
    known: dict[int, dict[str, Any]] = {}
    for row in rows:
        at = row["position"] - stats.prompt_tokens
        if 0 <= at < len(stats.token_ids) and row["token"] == stats.token_ids[at]:
            known.setdefault(at, row)
    return [known[at] for at in sorted(known)]
