"""Jobs in several threads, told from outside when to go on: no timing, every order is forced."""

import threading
from contextlib import closing
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.batch.parallel import InOrder, in_parallel


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> object:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [1, 3, 20])
def test_all_jobs_are_done_once(threads: int) -> None:
    results = in_parallel(range(10), lambda job: job + 100, threads, threading.Event())
    assert sorted(results) == list(range(100, 110))


def test_one_thread_keeps_the_order() -> None:
    assert list(in_parallel(range(10), lambda job: job, 1, threading.Event())) == list(range(10))


def test_no_jobs_at_all() -> None:
    assert list(in_parallel([], lambda job: job, 4, threading.Event())) == []


def test_so_many_are_at_work_and_results_come_as_they_get_done() -> None:
    together = threading.Barrier(3, timeout=20)
    second_is_out = threading.Event()

    def work(job: int) -> int:
        together.wait()  # passes only when all three are at work
        if job != 1:
            assert second_is_out.wait(20)
        return job

    results = in_parallel([0, 1, 2], work, 3, threading.Event())
    assert next(results) == 1
    second_is_out.set()
    assert sorted(results) == [0, 2]


def test_what_is_done_when_it_stops_is_kept_and_nothing_is_begun_any_more() -> None:
    stop, begun = threading.Event(), SimpleQueue[int]()

    def work(job: int) -> int | None:
        begun.put(job)
        if job == 2:
            stop.set()
            return None  # broken off
        return job

    assert list(in_parallel(range(9), work, 1, stop)) == [0, 1]
    assert begun.qsize() == 3


@pytest.mark.parametrize("error", [ValueError("odd"), KeyboardInterrupt()])
def test_an_error_ends_the_others_and_is_raised_after_what_got_done(error: BaseException) -> None:
    stop = threading.Event()
    failing = threading.Event()

    def work(job: int) -> int:
        if job == 0:
            assert failing.wait(20) and stop.wait(20)
            return job
        failing.set()
        raise error

    results = in_parallel(range(5), work, 2, stop)
    assert next(results) == 0
    with pytest.raises(type(error)):
        next(results)


def test_closing_ends_it() -> None:
    stop = threading.Event()

    def work(job: int) -> int:
        if job:
            assert stop.wait(20)
        return job

    with closing(in_parallel(range(50), work, 2, stop)) as results:
        assert next(results) == 0
    assert stop.is_set()


@given(st.permutations(range(8)), st.integers(0, 8))
def test_in_order(places: list[int], count: int) -> None:
    order: InOrder[str] = InOrder()
    come = places[:count]
    passed: list[str] = []
    for number, place in enumerate(come, 1):
        passed += order.put(place, str(place))
        so_far = set(come[:number])
        ready = next(at for at in range(9) if at not in so_far)
        assert passed == [str(at) for at in range(ready)]
    assert [*passed, *order.rest()] == [str(at) for at in sorted(come)]
