"""Measures what is left of a run, stretch by stretch."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from lab.bench.cases.arrivals import due_times
from lab.bench.load.asking import Asker
from lab.bench.load.jobs import WARM_UP, Job, PlannedStretch, PreparedCase, plan
from lab.bench.load.pacing import as_due, in_a_loop, together
from lab.bench.meters.energy import EnergyMeters, Meter
from lab.bench.record_files import RecordsWriter
from lab.bench.records import MeasuredRequest, Run, Stretch
from lab.bench.run.preparing import ProbedSide


class Watch(Protocol):
    """Sees how a run goes."""

    def begin(self, stretches: Sequence[PlannedStretch]) -> None: ...

    def request(self, request: MeasuredRequest) -> None: ...

    def stretch(self, stretch: Stretch) -> None: ...


class Measuring:
    """Measures the rest of a run, and writes each record as soon as it is there.

    `meters`: of energy.
    `clock`: that of the sides' clients. `now`: seconds since 1970.
    """

    def __init__(
        self,
        run: Run,
        cases: Sequence[PreparedCase],
        sides: Sequence[ProbedSide],
        writer: RecordsWriter,
        *,
        meters: Mapping[str, Meter],
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._run, self._writer, self._meters = run, writer, meters
        self._cases = {each.case.name: each for each in cases}
        self._sides = {each.side.name: each for each in sides}
        self._clock = clock
        self._began = clock() - (now() - run.begun_unix)
        stretches = [each.number for each in writer.records if isinstance(each, Stretch)]
        self._first = max(stretches, default=-1) + 1
        self._number = self._first

    async def measure(self, watch: Watch) -> None:
        """Measure all that has no record yet, or failed. What was measured stays, also if this is cancelled.

        Raises BadSide where an endpoint is gone.
        """
        for stretches in self.stretches():
            watch.begin(stretches)
            await together([self._stretch(each, watch, alone=len(stretches) == 1) for each in stretches])

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

    async def _stretch(self, planned: PlannedStretch, watch: Watch, *, alone: bool) -> None:
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
        meters = EnergyMeters(self._meters if alone else {})
        requests: list[MeasuredRequest] = []

        def record(request: MeasuredRequest) -> None:
            requests.append(request)
            self._writer.add(request)
            meters.update()
            watch.request(request)

        async def run(job: Job, scheduled: float) -> None:
            await asker.ask(job, scheduled, record)

        try:
            await self._paced(planned, prepared, run)
        finally:
            if requests:
                made = _stretch_of(planned, number, requests, meters.update())
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


def _stretch_of(
    planned: PlannedStretch, number: int, requests: Sequence[MeasuredRequest], energy: dict[str, float]
) -> Stretch:
    return Stretch(
        number=number,
        side=planned.side,
        case=planned.case,
        repetition=planned.repetition,
        begun=min(each.started for each in requests),
        ended=round(max(each.started + each.ended for each in requests), 6),
        energy_joules=energy,
    )
