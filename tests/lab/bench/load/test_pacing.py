"""Jobs begin when they are due, or as others end."""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.bench.load.pacing import as_due, in_a_loop


class Jobs:
    """Counts the jobs under way; each ends after some turns of the loop."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.now = self.most = 0

    async def run(self, job: int, due: float) -> None:
        self.begun.append(job)
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(job % 3 + 1):
            await asyncio.sleep(0)
        self.now -= 1


@given(st.integers(1, 20), st.integers(1, 6))
@settings(deadline=None)
def test_a_loop_keeps_so_many_under_way(count: int, at_once: int) -> None:
    jobs = Jobs()
    asyncio.run(in_a_loop(range(count), jobs.run, at_once, time.perf_counter))
    assert jobs.begun == list(range(count))
    assert jobs.most == min(count, at_once)


@given(st.integers(1, 20), st.none() | st.integers(1, 6))
@settings(deadline=None)
def test_jobs_that_are_due_wait_only_for_a_place(count: int, at_once: int | None) -> None:
    jobs = Jobs()
    asyncio.run(as_due(range(count), [0.0] * count, jobs.run, at_once, time.perf_counter))
    assert sorted(jobs.begun) == list(range(count))
    assert jobs.most == min(count, at_once or count)


def test_jobs_begin_in_the_order_in_which_they_are_due() -> None:
    jobs, dues = Jobs(), list[float]()

    async def run(job: int, due: float) -> None:
        dues.append(due)
        await jobs.run(job, due)

    asyncio.run(as_due([0, 1, 2], [0.0, 0.01, 0.02], run, None, time.perf_counter))
    assert jobs.begun == [0, 1, 2]
    assert [later - dues[0] for later in dues] == pytest.approx([0.0, 0.01, 0.02])


def test_an_error_ends_the_others() -> None:
    ended = []

    async def run(job: int, due: float) -> None:
        if job == 1:
            raise ValueError("one")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job)

    with pytest.raises(ValueError, match="one"):
        asyncio.run(in_a_loop([0, 1, 2], run, 3, time.perf_counter))
    assert sorted(ended) == [0, 2]
