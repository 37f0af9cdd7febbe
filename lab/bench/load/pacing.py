"""Begins jobs when they are due, or as others end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

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
