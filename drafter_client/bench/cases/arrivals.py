"""When requests are due, as each kind of arrival has it. Pure: the same seed gives the same times."""

import csv
import io
import json
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, NamedTuple

from drafter_client.bench.cases.case import Arrival, Bursts, Poisson
from drafter_client.errors import BadCase

_FORMS = "CSV with TIMESTAMP,ContextTokens,GeneratedTokens, or JSON Lines with timestamp, input_length, output_length"


class Due(NamedTuple):
    """A request of a trace: seconds after the first, and how long its input and output were."""

    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None


def due_times(arrival: Arrival, count: int, seed: str, trace: Sequence[Due]) -> list[float] | None:
    """Seconds after the beginning at which `count` requests are due, in ascending order. None: a closed loop, in which
    a request begins as another ends.

    `seed`: of random arrivals.
    `trace`: what the file of `arrival` has, if it names one; it begins anew behind its end.
    """
    if arrival == "closed":
        return None
    if isinstance(arrival, Poisson):
        draw = random.Random(seed)
        gaps = [draw.expovariate(arrival.poisson) for _ in range(count)]
        return list(accumulate(gaps))
    if isinstance(arrival, Bursts):
        return [number // arrival.bursts.size * arrival.bursts.every for number in range(count)]
    speed = arrival.trace.speed
    mean = trace[-1].seconds / max(1, len(trace) - 1)
    length = trace[-1].seconds + mean  # from one first request to the next
    return [(number // len(trace) * length + trace[number % len(trace)].seconds) / speed for number in range(count)]


def parse_trace(text: str, name: str) -> list[Due]:
    """The requests of the trace in the file called `name`, by their times. Raises BadCase, which names the line."""
    of_json = name.endswith(".jsonl")
    rows: Iterable[Any] = filter(str.strip, text.splitlines()) if of_json else csv.DictReader(io.StringIO(text))
    read = _of_mooncake if of_json else _of_azure
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(read(row))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise BadCase(f"{name}, request {number}: this is no request of a trace ({_FORMS}): {error!r}") from None
    if not found:
        raise BadCase(f"{name} has no requests: {_FORMS}")
    found.sort(key=lambda due: due.seconds)
    return [due._replace(seconds=due.seconds - found[0].seconds) for due in found]


def _of_mooncake(line: str) -> Due:
    """`timestamp` in milliseconds, `input_length`, `output_length`."""
    row = json.loads(line)
    return Due(float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"]))


def _of_azure(row: Any) -> Due:
    """`TIMESTAMP` as date and time, with up to seven decimals of a second; `ContextTokens`, `GeneratedTokens`."""
    whole, _, decimals = row["TIMESTAMP"].partition(".")
    begun = datetime.fromisoformat(whole.strip()).replace(tzinfo=UTC).timestamp()
    return Due(begun + float(f"0.{decimals or 0}"), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
