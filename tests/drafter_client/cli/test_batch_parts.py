"""Parts of a run over many prompts: tasks in threads, whose order the tests force with events, and its totals."""

import io
import signal
import threading
from _thread import interrupt_main
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import pytest
from rich.console import Console

from drafter_client.cli.batch import in_parallel, show_totals
from drafter_client.cli.results import Result


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


def _text(index: int, tokens: int, total_ms: float, **more: Any) -> Result:
    line = {"model": "big-7b", "draft_model": "small-1b", "id": None, "generated_tokens": tokens, "total_ms": total_ms}
    line |= {"rounds": 10, "drafted": 40, "accepted": 30, "ttft_ms": 20.0, "bytes_sent": 1024, "bytes_received": 2048}
    asked = {"strategy": "coupled", "threshold": None, "mode": "remote"}
    return Result(index, line | {"text": "…", "asked": asked} | more)


FAILED = Result(3, {"id": None, "error": {"message": "too long"}})
FOUND = [_text(0, 100, 3000.0, outage_ms=2000.0, resumed=[4])]
NEW = [_text(2, 100, 2000.0, ttft_ms=30.0), _text(1, 100, 500.0, id="fib", ttft_ms=40.0), FAILED]


def _shown(prompts: int, found: list[Result], new: list[Result], seconds: float, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show_totals(prompts, found, new, seconds, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _rows(shown: str) -> list[str]:
    return [" ".join(line.strip("│╭─╮ ").split()) for line in shown.splitlines()]


def test_the_totals_are_over_earlier_runs_too_without_their_outages() -> None:
    shown = _shown(5, FOUND, NEW, 4.0)
    assert _rows(shown)[:-1] == [
        "small-1b drafts for big-7b",
        "prompts 5 all together 50.00 tokens/s",
        "finished 3 a text, median 100.00 tokens/s",
        "errors 1 TTFT, median 30 ms",
        "tokens 300 time 4.0 s",
        "acceptance rate 75.0% mean acceptance length 4.00",
        "sent 3.0 KiB received 6.0 KiB",
        "waited 2.0 s for the verifier, which is no part of the speed of a text",
        "1 text was resumed after the verifier went away",
    ]
    assert all(len(line) <= 60 for line in _shown(5, FOUND, NEW, 4.0, 60).splitlines())


def test_totals_without_texts_or_without_drafts_are_dashes() -> None:
    assert _rows(_shown(2, [], [FAILED], 0.0))[:6] == [
        "no text",
        "prompts 2 all together -",
        "finished 0 a text, median -",
        "errors 1 TTFT, median -",
        "tokens 0 time 0.0 s",
        "acceptance rate - mean acceptance length -",
    ]
    shown = _rows(_shown(1, [], [_text(0, 10, 100.0, draft_model="", rounds=0, drafted=0, accepted=0)], 0.2))
    assert shown[0] == "big-7b" and "acceptance rate - mean acceptance length -" in shown


@pytest.mark.parametrize(
    ("strategy", "threshold", "mode", "row"),
    [
        ("threshold", 0.25, "remote", "strategy threshold 0.25 the text is lossy"),
        ("threshold", 0.25, "target", "strategy threshold 0.25 the text is target's sample"),
        ("probabilistic", None, "remote", "strategy probabilistic the text is target's sample"),
        ("coupled", None, "remote", None),
    ],
)
def test_another_strategy_is_named_with_its_exactness(
    strategy: str, threshold: float | None, mode: str, row: str | None
) -> None:
    asked = {"strategy": strategy, "threshold": threshold, "mode": mode}
    shown = _shown(1, [], [_text(0, 10, 100.0, asked=asked)], 0.2)
    assert [each for each in _rows(shown) if each.startswith("strategy")] == ([] if row is None else [row])
