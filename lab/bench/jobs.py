"""Plans a run: the requests of a repetition, the order of sides and cases, and the start of each job."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from lab.bench.case import Api, Arrival, Case, Count, Due

Done = Set[tuple[str, str, int, int]]  # side, case, repetition, index of the requests that were measured
WARM_UP = -1  # the repetition of requests for warming up


class Job(BaseModel):
    """A request, or the requests of a conversation one after the other.

    `index`: of its first request in the repetition.
    `requests`: how many.
    `prompt`: number of its prompt in the case.
    `characters`: to which its text is cut or repeated; None: as it is.
    `max_tokens`: of each request.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    index: int
    requests: int
    prompt: int
    characters: int | None = None
    max_tokens: Count

    @property
    def indices(self) -> range:
        return range(self.index, self.index + self.requests)


class PreparedCase(BaseModel):
    """A case ready to run: the API for all sides, and the jobs of a repetition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case: Case
    api: Api
    jobs: tuple[Job, ...]

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def requests(self) -> int:
        """The number of requests in a repetition."""
        return sum(job.requests for job in self.jobs)

    def text_of(self, job: Job) -> str | None:
        """The text of a job's prompt; None: it has messages or turns."""
        prompt = self.case.prompts[job.prompt]
        return None if prompt.text is None else prompt.cut_to(job.characters)


class Fitted(NamedTuple):
    """The length of a prompt's text for a number of tokens."""

    characters: int
    tokens: int


def jobs_of(case: Case, fitted: Sequence[Fitted | None]) -> tuple[Job, ...]:
    """The jobs of a repetition.

    `fitted`: of each prompt; None: its text stays as it is.
    """
    jobs, index = [], 0
    trace = case.arrival.trace
    for number in range(case.jobs):
        at = number % len(case.prompts)
        due = trace.requests[number % len(trace.requests)] if trace is not None and trace.lengths else Due(0.0)
        fit, wanted = fitted[at], due.input_tokens
        job = Job(
            number=number,
            index=index,
            requests=case.prompts[at].requests,
            prompt=at,
            characters=None if fit is None else max(1, fit.characters * (wanted or fit.tokens) // fit.tokens),
            max_tokens=due.output_tokens or case.output_tokens,
        )
        jobs.append(job)
        index += job.requests
    return tuple(jobs)


@dataclass(frozen=True)
class Stretch:
    """Jobs that load a side without interruption; throughput is measured over a stretch."""

    side: str
    case: PreparedCase
    repetition: int
    jobs: tuple[Job, ...]


def plan(
    cases: Sequence[PreparedCase], sides: Sequence[str], *, repetitions: int, warm_up: int, done: Done = frozenset()
) -> Iterator[Stretch]:
    """Yield the stretches of a run in order.

    Case by case: first each side is warmed up with `warm_up` jobs, then sides take turns within each repetition, and
    another side begins each time. Where one job runs at a time, they take turns after each, as this is least disturbed
    by a machine whose speed changes; else after all jobs of the repetition.

    `done`: what is left out. A conversation of which a turn is missing is asked again as a whole.
    """
    turn = 0
    for each in cases:
        size = 1 if each.case.arrival.is_closed and each.case.most_at_once == 1 else len(each.jobs)
        rounds = [
            (repetition, each.jobs[at : at + size])
            for repetition in range(repetitions)
            for at in range(0, len(each.jobs), size)
        ]
        missing = {
            side: [tuple(job for job in jobs if not _is_done(job, side, each.name, at, done)) for at, jobs in rounds]
            for side in sides
        }
        for number, (repetition, jobs) in enumerate([(WARM_UP, each.jobs[:warm_up]), *rounds], -1):
            for side in [*sides[turn % len(sides) :], *sides[: turn % len(sides)]]:
                warming = jobs if any(missing[side]) else ()
                if left := warming if repetition == WARM_UP else missing[side][number]:
                    yield Stretch(side, each, repetition, left)
            turn += bool(jobs)


def _is_done(job: Job, side: str, case: str, repetition: int, done: Done) -> bool:
    return all((side, case, repetition, index) in done for index in job.indices)


def due_times(arrival: Arrival, count: int, seed: str) -> list[float] | None:
    """Seconds after the beginning at which `count` requests are due, in ascending order. None: a closed loop, in which
    a request begins as another ends.

    `seed`: of random arrivals. A trace begins anew behind its end.
    """
    if arrival.poisson is not None:
        draw = random.Random(seed)
        return list(accumulate(draw.expovariate(arrival.poisson) for _ in range(count)))
    if arrival.bursts is not None:
        return [number // arrival.bursts.size * arrival.bursts.every for number in range(count)]
    if arrival.trace is None:
        return None
    trace, speed = arrival.trace.requests, arrival.trace.speed
    mean = trace[-1].seconds / max(1, len(trace) - 1)
    length = trace[-1].seconds + mean  # from one first request to the next
    return [(number // len(trace) * length + trace[number % len(trace)].seconds) / speed for number in range(count)]


T = TypeVar("T")
Run = Callable[[T, float], Awaitable[None]]  # a job, and when it was due


async def in_a_loop(jobs: Sequence[T], run: Run[T], at_once: int, clock: Callable[[], float]) -> None:
    """Closed loop: keep `at_once` jobs under way until all are done. Raises the first error of a job, which ends the
    others."""
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            await run(job, clock())

    await _together([worker() for _ in range(min(at_once, len(jobs)))])


async def as_due(
    jobs: Sequence[T], due: Sequence[float], run: Run[T], at_once: int | None, clock: Callable[[], float]
) -> None:
    """Open loop: each job begins when it is due, whether or not others have ended.

    `due`: seconds from now, ascending.
    `at_once`: jobs under way at most; None: as many as are due.

    Raises the first error of a job, which ends the others.
    """
    begun, places = clock(), asyncio.Semaphore(at_once or len(jobs))

    async def one(job: T, seconds: float) -> None:
        await asyncio.sleep(begun + seconds - clock())
        async with places:
            await run(job, begun + seconds)

    await _together([one(job, seconds) for job, seconds in zip(jobs, due, strict=True)])


async def _together(works: Sequence[Awaitable[None]]) -> None:
    """Run all at once. Raises the first error, after it has ended the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
