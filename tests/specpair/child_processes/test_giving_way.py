"""A process that gives way is stopped while texts are written, most of the time, and goes on behind them."""

import signal
import subprocess
import sys
import threading
from typing import cast

import pytest

from specpair.child_processes.giving_way import GivingWay

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing can be stopped there")


class Process:
    """Notes its signals."""

    def __init__(self) -> None:
        self.signals: list[signal.Signals] = []
        self._came = threading.Condition()

    def send_signal(self, one: signal.Signals) -> None:
        with self._came:
            self.signals.append(one)
            self._came.notify_all()

    def wait_for(self, last: signal.Signals, count: int) -> None:
        """Wait until there are so many signals, of which the last is this one."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.signals) >= count and self.signals[-1] is last, 20.0)


@pytest.fixture
def giving_way() -> GivingWay:
    return GivingWay(0.001, 0.001)


def test_a_process_is_stopped_by_turns_while_a_text_is_written(giving_way: GivingWay) -> None:
    process = Process()
    with giving_way.process(cast("subprocess.Popen[str]", process)):
        process.wait_for(signal.SIGCONT, 1)
        with giving_way.text():
            process.wait_for(signal.SIGSTOP, 2)
            with giving_way.text():
                process.wait_for(signal.SIGCONT, 9)
        process.wait_for(signal.SIGCONT, 10)
    assert process.signals[-1] is signal.SIGCONT
    assert all(one is not other for one, other in zip(process.signals[:9], process.signals[1:9], strict=False))


def test_one_that_begins_beside_a_text_is_stopped_and_one_that_is_to_end_goes_on(giving_way: GivingWay) -> None:
    process = Process()
    with giving_way.text(), giving_way.process(cast("subprocess.Popen[str]", process)):
        process.wait_for(signal.SIGSTOP, 1)
        giving_way.release()
        process.wait_for(signal.SIGCONT, 2)
    assert process.signals[-1] is signal.SIGCONT
