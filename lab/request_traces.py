"""Reads the requests of recorded loads lazily, in the forms of several public traces and of a verifier's log.

The form of a trace is found by the columns of its first line, or by its keys."""

import csv
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple


class BadTrace(ValueError):
    """A file is no trace of requests. The message names the file, the line, and the expected value."""


class TracedRequest(NamedTuple):
    """A request of a trace.

    `seconds`: when it came, on the trace's own clock.
    `session`: of requests that continue one another; empty: not recorded.
    `tenant`: whose it was; empty: not recorded.
    """

    seconds: float
    input_tokens: int
    output_tokens: int
    session: str = ""
    tenant: str = ""


Row = Mapping[str, Any]


class Form(NamedTuple):
    """A trace format: its columns or keys, and the reader of a row. The reader returns None for requests not served."""

    keys: tuple[str, ...]
    read: Callable[[Row], TracedRequest | None]


def _azure(row: Row) -> TracedRequest:
    """`TIMESTAMP`: date and time, with up to seven decimals of a second."""
    return TracedRequest(_moment(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _burstgpt(row: Row) -> TracedRequest | None:
    """`Timestamp` in seconds; newer files have `Session ID`, too. A request without a response failed."""
    response = int(row["Response tokens"])
    if response == 0:
        return None
    session = str(row.get("Session ID") or "")
    return TracedRequest(float(row["Timestamp"]), int(row["Request tokens"]), response, session)


def _mooncake(row: Row) -> TracedRequest:
    """`timestamp` in milliseconds."""
    return TracedRequest(float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"]))


def _ours(row: Row) -> TracedRequest:
    """The fields of `TracedRequest`."""
    session, tenant = str(row.get("session") or ""), str(row.get("tenant") or "")
    return TracedRequest(float(row["seconds"]), int(row["input_tokens"]), int(row["output_tokens"]), session, tenant)


def _verifier_log(row: Row) -> TracedRequest | None:
    """The line of a text's end, with `--log-format json`: the text began as long before as its tokens took."""
    if row["logger"] != "specpair.texts" or not row["tokens_per_second"]:
        return None
    generated = int(row["generated_tokens"])
    began = _moment(row["time"]) - generated / float(row["tokens_per_second"])
    return TracedRequest(began, int(row["prompt_tokens"]), generated, str(row.get("session_id") or ""))


def _moment(text: str) -> float:
    """Seconds since 1970 of a date and time; without a zone, UTC."""
    whole, _, decimals = text.strip().partition(".")
    digits = decimals[: len(decimals) - len(decimals.lstrip("0123456789"))]
    begun = datetime.fromisoformat(whole + decimals[len(digits) :])
    return (begun if begun.tzinfo else begun.replace(tzinfo=UTC)).timestamp() + float(f"0.{digits or 0}")


OF_CSV = {
    "Azure's": Form(("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure),
    "BurstGPT's": Form(("Timestamp", "Request tokens", "Response tokens"), _burstgpt),
}
OF_JSON_LINES = {
    "Mooncake's": Form(("timestamp", "input_length", "output_length"), _mooncake),
    "a verifier's log": Form(("time", "logger"), _verifier_log),
    "ours": Form(("seconds", "input_tokens", "output_tokens"), _ours),
}


def _listed(forms: Mapping[str, Form]) -> str:
    return "; ".join(f"{', '.join(form.keys)} ({name})" for name, form in forms.items())


LATE = 600.0  # seconds that a request may stand behind a later one: logs have texts in the order of their ends


def requests(lines: Iterable[str], name: str) -> Iterator[TracedRequest]:
    """The requests of the trace in the file called `name`, in its order.

    `lines`: of the file; no more than one is kept.

    Raises BadTrace, when that place is reached, for a row that is no request, and if the trace has none at all.
    """
    given = ((number, line.lstrip("\ufeff")) for number, line in enumerate(lines, 1))
    first = next((each for each in given if each[1].strip()), None)
    found, form = False, None
    if first is not None:
        is_json = first[1].lstrip().startswith("{")
        forms = OF_JSON_LINES if is_json else OF_CSV
        for where, row in (_json_rows if is_json else _csv_rows)(chain([first], given), name):
            form = form or next((each for each in forms.values() if all(key in row for key in each.keys)), None)
            if form is None:
                raise BadTrace(f"{where}: no trace has the keys {', '.join(map(str, row))}: {_listed(forms)}")
            request = _read(form.read, row, where)
            if request is not None:
                found = True
                yield request
    if not found:
        raise BadTrace(f"{name} has no requests: give CSV or JSON Lines with {_listed(OF_CSV | OF_JSON_LINES)}")


def in_order(requests: Iterable[TracedRequest], name: str, late: float = LATE) -> Iterator[TracedRequest]:
    """The requests sorted by time. Holds the requests of the last `late` seconds in memory.

    Raises BadTrace for a request that comes later than that behind its place.
    """
    waiting: list[tuple[float, int, TracedRequest]] = []
    newest = last = float("-inf")
    for number, request in enumerate(requests):
        if request.seconds < last:
            raise BadTrace(f"{name}: a request comes more than {late:g} s too late: sort the file by time")
        heapq.heappush(waiting, (request.seconds, number, request))
        newest = max(newest, request.seconds)
        while waiting and waiting[0][0] <= newest - late:
            last, _, due = heapq.heappop(waiting)
            yield due
    while waiting:
        yield heapq.heappop(waiting)[2]


def _csv_rows(lines: Iterable[tuple[int, str]], name: str) -> Iterator[tuple[str, Row]]:
    rows = csv.DictReader(line for _, line in lines)
    for row in rows:
        yield f"{name}, line {rows.line_num}", row


def _json_rows(lines: Iterable[tuple[int, str]], name: str) -> Iterator[tuple[str, Row]]:
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except ValueError:
            raise BadTrace(f"{where}: this is not JSON") from None
        if not isinstance(row, dict):
            raise BadTrace(f"{where}: this is no object")
        yield where, row


def _read(read: Callable[[Row], TracedRequest | None], row: Row, where: str) -> TracedRequest | None:
    try:
        request = read(row)
    except KeyError as error:
        raise BadTrace(f"{where}: {error.args[0]} is missing") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise BadTrace(f"{where}: {error}") from None
    if request is not None and not (
        isfinite(request.seconds) and request.input_tokens >= 0 and request.output_tokens >= 0
    ):
        raise BadTrace(f"{where}: a time is finite, and no number of tokens is negative: {request}")
    return request
