"""Measures what is left of a run, stretch by stretch, and shows how far it is."""

import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.bench.asking import Asker
from lab.bench.case_files import due_times
from lab.bench.jobs import WARM_UP, Job, PlannedStretch, PreparedCase, as_due, in_a_loop, plan, together
from lab.bench.preparing import ProbedSide
from lab.bench.record_files import RecordsWriter
from lab.bench.records import MeasuredRequest, Run, Stretch
from specpair.numbers import counted


class Measuring:
    """Measures the rest of a run, and writes each record as soon as it is there.

    `clock`: that of the sides' clients. `now`: seconds since 1970.
    """

    def __init__(
        self,
        run: Run,
        cases: Sequence[PreparedCase],
        sides: Sequence[ProbedSide],
        writer: RecordsWriter,
        *,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._run, self._writer = run, writer
        self._cases = {each.case.name: each for each in cases}
        self._sides = {each.side.name: each for each in sides}
        self._clock = clock
        self._began = clock() - (now() - run.begun_unix)
        stretches = [each.number for each in writer.records if isinstance(each, Stretch)]
        self._first = max(stretches, default=-1) + 1
        self._number = self._first

    async def measure(self, watch: "RunProgress") -> None:
        """Measure all that has no record yet, or failed. What was measured stays, also if this is cancelled.

        Raises BadSide where an endpoint is gone.
        """
        for stretches in self.stretches():
            watch.begin(stretches)
            await together([self._stretch(each, watch) for each in stretches])

    def stretches(self) -> list[list[PlannedStretch]]:
        """What is left to measure: requests that failed, too."""
        made = [each for each in self._writer.records if isinstance(each, MeasuredRequest) and not each.is_warm_up]
        done = {(each.side, *each.pairing) for each in made if each.failure is None}
        found = plan(
            list(self._cases.values()),
            list(self._sides),
            repetitions=self._run.repetitions,
            warm_up=self._run.warm_up,
            interleaving=self._run.interleaving,
            done=done,
        )
        return list(found)

    async def _stretch(self, planned: PlannedStretch, watch: "RunProgress") -> None:
        number = self._number
        self._number += 1
        prepared, probed = self._cases[planned.case], self._sides[planned.side]
        asker = Asker(
            side=probed.side,
            client=probed.client,
            abilities=probed.abilities,
            prepared=prepared,
            repetition=planned.repetition,
            stretch=number,
            seed=self._run.seed,
            began=self._began,
            salt=f"{self._run.begun_unix}-{self._first}-{number}",
            keeps_texts=bool(self._run.options.get("texts", True)),
        )
        requests: list[MeasuredRequest] = []

        def record(request: MeasuredRequest) -> None:
            requests.append(request)
            self._writer.add(request)
            watch.request(request)

        async def run(job: Job, scheduled: float) -> None:
            await asker.ask(job, scheduled, record)

        try:
            await self._paced(planned, prepared, run)
        finally:
            if requests:
                made = _stretch_of(planned, number, requests)
                self._writer.add(made)
                watch.stretch(made)

    async def _paced(
        self, planned: PlannedStretch, prepared: PreparedCase, run: Callable[[Job, float], Awaitable[None]]
    ) -> None:
        """Begin the jobs as the case's arrivals have it; those for warming up in a loop."""
        case = prepared.case
        seed = f"{self._run.seed}-{case.name}-{planned.repetition}"
        due = due_times(case.arrival, len(prepared.jobs), seed, prepared.trace)
        if due is None or planned.repetition == WARM_UP:
            await in_a_loop(planned.jobs, run, case.most_at_once or 1, self._now)
        else:
            first = due[planned.jobs[0].number] if planned.jobs[0].number else 0.0  # of an interrupted run, later
            own = [due[job.number] - first for job in planned.jobs]
            await as_due(planned.jobs, own, run, case.concurrency, self._now)

    def _now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began


def _stretch_of(planned: PlannedStretch, number: int, requests: Sequence[MeasuredRequest]) -> Stretch:
    return Stretch(
        number=number,
        side=planned.side,
        case=planned.case,
        repetition=planned.repetition,
        begun=min(each.started for each in requests),
        ended=round(max(each.started + each.ended for each in requests), 6),
    )


_Turn = tuple[str, int, str]  # case, repetition, side
_REDRAWS = 2.0  # a second: each takes a few milliseconds, in which no chunk's time is taken


class RunProgress:
    """Shows how far a run is: a bar over all requests in a terminal, a line for each repetition of a side elsewhere."""

    def __init__(self, console: Console, bar: Progress, stretches: Sequence[PlannedStretch], repetitions: int) -> None:
        self._console, self._bar, self._repetitions = console, bar, repetitions
        self._task = bar.add_task("", total=sum(job.requests for each in stretches for job in each.jobs))
        self._left = Counter(map(_turn, stretches))
        self._requests, self._seconds = Counter[_Turn](), defaultdict[_Turn, float](float)

    def begin(self, stretches: Sequence[PlannedStretch]) -> None:
        names = ", ".join(each.side for each in stretches)
        self._bar.update(self._task, description=f"{self._place(stretches[0])}: {names}")

    def request(self, request: MeasuredRequest) -> None:
        self._bar.advance(self._task)
        self._requests[_turn(request)] += 1

    def stretch(self, stretch: Stretch) -> None:
        turn = _turn(stretch)
        self._left[turn] -= 1
        self._seconds[turn] += stretch.ended - stretch.begun
        if self._left[turn] == 0 and not self._console.is_terminal:
            made = counted(self._requests[turn], "request")
            said = f"{self._place(stretch)}: {stretch.side}, {made} in {self._seconds[turn]:.1f} s"
            self._console.print(f"drafter: {said}", soft_wrap=True)

    def _place(self, stretch: PlannedStretch | Stretch) -> str:
        if stretch.repetition == WARM_UP:
            return f"{stretch.case}, warming up"
        return f"{stretch.case}, repetition {stretch.repetition + 1} of {self._repetitions}"


def _turn(of: PlannedStretch | Stretch | MeasuredRequest) -> _Turn:
    return of.case, of.repetition, of.side


@contextmanager
def shown(console: Console, stretches: Sequence[PlannedStretch], repetitions: int) -> Iterator[RunProgress]:
    """A context that shows the progress of a run on `console`. `stretches`: those that are left."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    options: dict[str, Any] = {"transient": True, "refresh_per_second": _REDRAWS, "disable": not console.is_terminal}
    with Progress(*columns, console=console, **options) as bar:
        yield RunProgress(console, bar, stretches, repetitions)
