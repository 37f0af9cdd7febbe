"""When requests are due, as each kind of arrival has it. Pure: the same seed gives the same times."""

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from lab.bench.cases.case import Arrival, Bursts, Poisson
from lab.bench.errors import BadCase
from lab.request_traces.reading import requests
from lab.request_traces.request import BadTrace


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
    try:
        found = sorted(requests(text.splitlines(), name))
    except BadTrace as error:
        raise BadCase(str(error)) from None
    return [Due(each.seconds - found[0].seconds, each.input_tokens, each.output_tokens) for each in found]
