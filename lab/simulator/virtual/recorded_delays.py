"""Round trips that were recorded, read from a file and replayed. Times in seconds, in files in milliseconds.

A line of the file is one round trip, in one of three forms: a number; two numbers, when it was measured in seconds and
how long it took; or a line of the output of `ping`, which says `time=12.3 ms`. With `ping -D` lines begin with the time
of day, too. Where `ping` begins the file, its other lines are passed over: a lost packet is the business of `loss`.
"""

import math
import random
import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from statistics import median

_MS = 1e-3
_PING = re.compile(r"(?:\[(?P<at>\d+\.?\d*)\] )?.*\btime[=<](?P<ms>\d+\.?\d*) ?ms\b")
_COLUMNS = re.compile(r"[,;\s]+")


class BadDelays(ValueError):
    """A file has no recorded delays. The message names the file, the line and what to do."""


class Drawn:
    """Round trips of which nobody knows when they were: each message has one of them, independently."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds

    @property
    def median(self) -> float:
        return median(self._seconds)

    def at(self, now: float, rng: random.Random) -> float:
        return self._seconds[int(rng.random() * len(self._seconds))]


class Replayed:
    """Round trips as they followed one another: each holds until the next one. Behind the last one, which holds for as
    long as the others did in the mean, the first one comes again."""

    def __init__(self, times: Sequence[float], seconds: Sequence[float]) -> None:
        """`times`: when each was measured, in ascending order; at least two."""
        self._times, self._seconds = [each - times[0] for each in times], seconds
        self._period = self._times[-1] * len(times) / (len(times) - 1)

    @property
    def median(self) -> float:
        return median(self._seconds)

    def at(self, now: float, rng: random.Random) -> float:
        return self._seconds[bisect_right(self._times, math.fmod(now, self._period)) - 1]


def read_delays(path: Path) -> Drawn | Replayed:
    """The round trips of a file. Raises BadDelays."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise BadDelays(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadDelays(f"{path} is not UTF-8 text") from None
    by_ping = any(line.startswith("PING ") for line in lines[:3])
    times: list[float] = []
    seconds: list[float] = []
    for number, line in enumerate(lines, 1):
        found = _PING.match(line)
        if not line.strip() or line.startswith("#") or (by_ping and found is None):
            continue
        where = f"{path}, line {number}"
        at, trip = (found["at"], found["ms"]) if found is not None else _columns(line, where)
        seconds.append(_number(trip, where) * _MS)
        if at is not None:
            times.append(_number(at, where))
        if times and len(times) < len(seconds):
            raise BadDelays(f"{where}: either all lines say when they were measured, or none does")
        if len(times) > 1 and times[-1] <= times[-2]:
            raise BadDelays(f"{where}: {times[-1]:g} s does not come behind {times[-2]:g} s: sort the lines")
    if not seconds:
        raise BadDelays(f"{path} has no round trips: give one a line, in milliseconds")
    return Replayed(times, seconds) if len(times) > 1 else Drawn(seconds)


def _columns(line: str, where: str) -> tuple[str | None, str]:
    """When a round trip was measured, and how long it took."""
    match _COLUMNS.split(line.strip()):
        case [trip]:
            return None, trip
        case [at, trip]:
            return at, trip
    raise BadDelays(f"{where} is not a round trip, {line.strip()[:60]!r}: give milliseconds, or seconds,milliseconds")


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise BadDelays(f"{where}: {text!r} is no time: give a number that is not negative")
    return number
