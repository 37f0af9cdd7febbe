"""What is made beside the prefill is left behind by nobody."""

import threading

import pytest

from drafter_client.generation.speculative_decoding import Preparation
from drafter_client.generation.text_session import TextSession
from drafter_client.options import Options
from specpair.drafters.run.executors import Executor


def test_a_thread_that_has_not_begun_its_work_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come before it has run."""
    held, made, joins = threading.Event(), list[bool](), list[float | None]()

    def make() -> Executor:
        made.append(True)
        raise AssertionError("nothing is made any more")

    class Thread(threading.Thread):
        def run(self) -> None:
            assert held.wait(20)
            super().run()

        def join(self, timeout: float | None = None) -> None:
            joins.append(timeout)
            held.set()
            super().join(timeout)

    preparation = Preparation(make, [1], TextSession([1]), Options())
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Thread)
        preparation.begin()
    assert preparation.close() == (0, 0)
    held.set()
    assert joins == [None] and not made and not any(isinstance(each, Thread) for each in threading.enumerate())
