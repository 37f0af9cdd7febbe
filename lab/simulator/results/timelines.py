"""The few requests of a replication whose timelines are shown, chosen while it runs, in memory that does not grow."""

import random
from dataclasses import dataclass, replace

from lab.simulator.fleet.record import Record, Status
from lab.simulator.virtual.timeline import Span, What

NOTED = 64  # requests at once whose spans are noted
_DRAWN = 33  # of these, those among which the one of median latency is
_TENANTS = 3  # whose first request is shown, at most


@dataclass(frozen=True, slots=True)
class Shown:
    """A request. `why`: it was chosen. `spans`: by their begin."""

    why: str
    record: Record  # without its timeline
    spans: list[Span]


class Chosen:
    """Chooses among the requests whose spans were noted and that were sent behind the burn-in: the first whole one of
    each tenant, the one of median latency among those that are drawn, and the one of the longest latency. If none is
    whole, the one that is under way the longest."""

    def __init__(self, begin: float, seed: int) -> None:
        """`begin`: the end of the burn-in, in seconds. `seed`: of the draw."""
        self._begin, self._chance = begin, random.Random(f"{seed}/timelines")
        self._firsts: dict[str, Record] = {}  # by tenant
        self._drawn: list[Record] = []
        self._count = 0  # requests among which they were drawn
        self._longest: Record | None = None
        self._under_way: Record | None = None

    def add(self, record: Record) -> None:
        """Take a request into account."""
        if record.timeline is None or record.sent < self._begin:
            return
        if record.status is Status.UNFINISHED:
            if self._under_way is None or record.sent < self._under_way.sent:
                self._under_way = record
        elif record.status is Status.WHOLE:
            self._take_first(record)
            self._draw(record)
            if self._longest is None or _latency(record) > _latency(self._longest):
                self._longest = record

    def _take_first(self, record: Record) -> None:
        first = self._firsts.get(record.tenant)
        if record.sent < first.sent if first is not None else len(self._firsts) < _TENANTS:
            self._firsts[record.tenant] = record

    def _draw(self, record: Record) -> None:
        """Keep it in a sample in which each request is as likely."""
        self._count += 1
        if len(self._drawn) < _DRAWN:
            self._drawn.append(record)
        elif (place := int(self._chance.random() * self._count)) < _DRAWN:
            self._drawn[place] = record

    def chosen(self) -> list[Shown]:
        """Each once, with all reasons for it."""
        if self._longest is None:
            return [] if self._under_way is None else [_shown("longest under way", self._under_way)]
        several = len(self._firsts) > 1
        firsts = [(f"first of {name}" if several else "first", self._firsts[name]) for name in sorted(self._firsts)]
        median = sorted(self._drawn, key=_latency)[(len(self._drawn) - 1) // 2]
        found: list[tuple[Record, list[str]]] = []
        for why, record in [*firsts, ("median latency", median), ("longest latency", self._longest)]:
            reasons = next((reasons for each, reasons in found if each is record), None)
            if reasons is None:
                found.append((record, [why]))
            else:
                reasons.append(why)
        return [_shown(", ".join(reasons), record) for record, reasons in found]


def _latency(record: Record) -> float:
    return record.end - record.sent


def _shown(why: str, record: Record) -> Shown:
    assert record.timeline is not None
    waited = [Span(What.DEVICE, record.sent, record.sent + record.waited)] if record.waited else []
    spans = sorted([*waited, *record.timeline.spans], key=lambda each: each.begin)
    return Shown(why, replace(record, timeline=None), spans)
