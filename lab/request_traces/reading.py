"""Reads the requests of a trace lazily. The form is found by the columns of the first line, or by its keys."""

import csv
import heapq
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import isfinite

from lab.request_traces.forms import OF_CSV, OF_JSON_LINES, Row, form_of, listed
from lab.request_traces.request import BadTrace, TracedRequest

LATE = 600.0  # seconds that a request may stand behind a later one: logs have texts in the order of their ends


def requests(lines: Iterable[str], name: str) -> Iterator[TracedRequest]:
    """The requests of the trace in the file called `name`, in its order.

    `lines`: of the file; no more than one is kept.

    Raises BadTrace, when that place is reached, for a row that is no request, and if the trace has none at all.
    """
    given = enumerate(iter(lines), 1)
    first = next(((number, line) for number, line in given if line.strip()), None)
    found = False
    if first is not None:
        is_json = first[1].lstrip("\ufeff ").startswith("{")
        for request in (_of_json_lines if is_json else _of_csv)(chain([first], given), name):
            found = True
            yield request
    if not found:
        raise BadTrace(f"{name} has no requests: give CSV or JSON Lines with {listed(OF_CSV | OF_JSON_LINES)}")


def in_order(requests: Iterable[TracedRequest], name: str, late: float = LATE) -> Iterator[TracedRequest]:
    """The requests by their times. Keeps those of the last `late` seconds.

    Raises BadTrace for a request that comes later than that behind its place.
    """
    waiting: list[tuple[float, int, TracedRequest]] = []
    newest = last = float("-inf")
    for number, request in enumerate(requests):
        if request.seconds < last:
            raise BadTrace(f"{name}: a request stands more than {late:g} s too late: sort the file by time")
        heapq.heappush(waiting, (request.seconds, number, request))
        newest = max(newest, request.seconds)
        while waiting and waiting[0][0] <= newest - late:
            last, _, due = heapq.heappop(waiting)
            yield due
    while waiting:
        yield heapq.heappop(waiting)[2]


_Numbered = Iterable[tuple[int, str]]


def _of_csv(lines: _Numbered, name: str) -> Iterator[TracedRequest]:
    rows = csv.DictReader(line.lstrip("\ufeff") for _, line in lines)
    form = form_of(dict.fromkeys(rows.fieldnames or ()), OF_CSV)
    if form is None:
        raise BadTrace(f"{name}: no trace has the columns {rows.fieldnames}: {listed(OF_CSV)}")
    for row in rows:
        request = _read(form.read, row, f"{name}, line {rows.line_num}")
        if request is not None:
            yield request


def _of_json_lines(lines: _Numbered, name: str) -> Iterator[TracedRequest]:
    form = None
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line.lstrip("\ufeff"))
        except ValueError:
            raise BadTrace(f"{where}: this is not JSON") from None
        if type(row) is not dict:
            raise BadTrace(f"{where}: this is no object")
        form = form or form_of(row, OF_JSON_LINES)
        if form is None:
            raise BadTrace(f"{where}: no trace has the keys {', '.join(row)}: {listed(OF_JSON_LINES)}")
        request = _read(form.read, row, where)
        if request is not None:
            yield request


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
