"""What is asked in a repetition of a case, in which order sides and cases take turns, and when jobs begin."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from lab.bench.case import Api, Case, Count, Traced
from lab.bench.case_files import Due
from lab.bench.records import Interleaving

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
    """A case ready to be run: with the API by which all sides are asked, and the jobs of a repetition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case: Case
    api: Api
    jobs: tuple[Job, ...]
    trace: tuple[Due, ...] = ()

    def text_of(self, job: Job) -> str | None:
        """The text of a job's prompt; None: it has messages or turns."""
        prompt = self.case.prompts[job.prompt]
        return None if prompt.text is None else prompt.cut_to(job.characters)


class Fitted(NamedTuple):
    """How long a prompt's text has to be for a number of tokens."""

    characters: int
    tokens: int


def jobs_of(case: Case, trace: Sequence[Due], fitted: Sequence[Fitted | None]) -> tuple[Job, ...]:
    """The jobs of a repetition.

    `fitted`: of each prompt; None: its text stays as it is.
    """
    jobs, index = [], 0
    has_lengths = isinstance(case.arrival, Traced) and case.arrival.trace.lengths
    for number in range(case.jobs):
        at = number % len(case.prompts)
        due = trace[number % len(trace)] if has_lengths else Due(0.0)
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
class PlannedStretch:
    """Jobs that load a side together."""

    side: str
    case: str
    repetition: int
    jobs: tuple[Job, ...]


def plan(
    cases: Sequence[PreparedCase],
    sides: Sequence[str],
    *,
    repetitions: int,
    warm_up: int,
    interleaving: Interleaving,
    done: Done = frozenset(),
) -> Iterator[list[PlannedStretch]]:
    """Yield the stretches of a run in order; those in one list run at the same time.

    Case by case: first each side is warmed up with `warm_up` jobs, then sides take turns within each repetition, and
    another side begins each time. `requests`: they take turns after as many jobs as run at once, or after all of them
    where requests arrive by themselves. `blocks`: after all jobs of the repetition. `auto`: by requests where one runs
    at a time, as this is least disturbed by a machine whose speed changes; else by blocks. `together`: all at once.

    `done`: what is left out. A conversation of which a turn is missing is asked again as a whole.
    """
    turn = 0
    for each in cases:
        case = each.case
        rounds = [(WARM_UP, each.jobs[:warm_up])]
        for repetition in range(repetitions):
            size = _turn(case, interleaving) or len(each.jobs)
            rounds += [(repetition, each.jobs[at : at + size]) for at in range(0, len(each.jobs), size)]
        missing = {
            (at, side): tuple(job for job in jobs if not _is_done(job, side, case.name, repetition, done))
            for at, (repetition, jobs) in enumerate(rounds)
            for side in sides
        }
        for at, (repetition, jobs) in enumerate(rounds):
            ordered = [*sides[turn % len(sides) :], *sides[: turn % len(sides)]]
            turn += bool(jobs)
            stretches = [
                PlannedStretch(side, case.name, repetition, missing[at, side])
                for side in ordered
                if missing[at, side]
                and (repetition != WARM_UP or any(missing[later, side] for later in range(1, len(rounds))))
            ]
            if interleaving == "together" and stretches:
                yield stretches
            else:
                yield from ([stretch] for stretch in stretches)


def _turn(case: Case, interleaving: Interleaving) -> int | None:
    """After how many jobs sides take turns; None: after all."""
    by_requests = interleaving == "requests" or (interleaving == "auto" and case.most_at_once == 1)
    return case.most_at_once if by_requests and case.arrival == "closed" else None


def _is_done(job: Job, side: str, case: str, repetition: int, done: Done) -> bool:
    return all((side, case, repetition, index) in done for index in job.indices)


T = TypeVar("T")
Run = Callable[[T, float], Awaitable[None]]  # a job, and when it was due


async def in_a_loop(jobs: Sequence[T], run: Run[T], at_once: int, clock: Callable[[], float]) -> None:
    """Closed loop: `at_once` jobs are under way as long as there are more. Raises the first error of a job, which ends
    the others."""
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            await run(job, clock())

    await together([worker() for _ in range(min(at_once, len(jobs)))])


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

    await together([one(job, seconds) for job, seconds in zip(jobs, due, strict=True)])


async def together(works: Sequence[Awaitable[None]]) -> None:
    """Do all works at once. Raises the first error, which ends the others; they have ended when this returns."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
