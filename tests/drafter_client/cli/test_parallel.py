"""Tasks in several threads whose order the tests force with events: nothing depends on timing."""

import signal
import threading
from _thread import interrupt_main
from contextlib import closing
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.cli.batch import InOrder, in_parallel


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> object:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)  # it may be about to end
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [1, 3, 20])
def test_each_task_is_done_once(threads: int) -> None:
    results = in_parallel(range(10), lambda task: task + 100, threads, threading.Event())
    assert sorted(results) == list(range(100, 110))


def test_one_thread_keeps_the_order() -> None:
    assert list(in_parallel(range(10), lambda task: task, 1, threading.Event())) == list(range(10))


def test_no_tasks_give_no_results() -> None:
    assert list(in_parallel([], lambda task: task, 4, threading.Event())) == []


def test_results_come_in_order_of_completion() -> None:
    together = threading.Barrier(3, timeout=20)
    second_is_out = threading.Event()

    def work(task: int) -> int:
        together.wait()  # passes only when all three are running
        if task != 1:
            assert second_is_out.wait(20)
        return task

    results = in_parallel([0, 1, 2], work, 3, threading.Event())
    assert next(results) == 1
    second_is_out.set()
    assert sorted(results) == [0, 2]


def test_stop_keeps_finished_results_and_starts_nothing() -> None:
    stop, begun = threading.Event(), SimpleQueue[int]()

    def work(task: int) -> int | None:
        begun.put(task)
        if task == 2:
            stop.set()
            return None  # abandoned
        return task

    assert list(in_parallel(range(9), work, 1, stop)) == [0, 1]
    assert begun.qsize() == 3


@pytest.mark.parametrize("error", [ValueError("odd"), KeyboardInterrupt()])
def test_an_error_stops_the_others_and_is_raised_after_the_results(error: BaseException) -> None:
    stop = threading.Event()
    failing = threading.Event()

    def work(task: int) -> int:
        if task == 0:
            assert failing.wait(20) and stop.wait(20)
            return task
        failing.set()
        raise error

    results = in_parallel(range(5), work, 2, stop)
    assert next(results) == 0
    with pytest.raises(type(error)):
        next(results)


def test_closing_stops_the_threads() -> None:
    stop = threading.Event()

    def work(task: int) -> int:
        if task:
            assert stop.wait(20)
        return task

    with closing(in_parallel(range(50), work, 2, stop)) as results:
        assert next(results) == 0
    assert stop.is_set()


def test_a_signal_that_does_not_end_the_wait_is_handled() -> None:
    """As one that arrives just before the wait begins: `interrupt_main` asks for the handler, and wakes no thread."""
    taken, handled = threading.Semaphore(1), threading.Semaphore(0)

    def work(task: int) -> bool:
        assert taken.acquire(timeout=20)  # the main thread is about to wait for this task
        interrupt_main(signal.SIGINT)
        return handled.acquire(timeout=20)

    before = signal.signal(signal.SIGINT, lambda number, frame: handled.release())
    try:
        for was_handled in in_parallel(range(5), work, 1, threading.Event()):
            assert was_handled
            taken.release()
    finally:
        signal.signal(signal.SIGINT, before)


@given(st.permutations(range(8)), st.integers(0, 8))
def test_in_order_passes_items_in_order_of_position(positions: list[int], count: int) -> None:
    order: InOrder[str] = InOrder()
    come = positions[:count]
    passed: list[str] = []
    for number, position in enumerate(come, 1):
        passed += order.put(position, str(position))
        so_far = set(come[:number])
        ready = next(at for at in range(9) if at not in so_far)
        assert passed == [str(at) for at in range(ready)]
    assert [*passed, *order.rest()] == [str(at) for at in sorted(come)]
