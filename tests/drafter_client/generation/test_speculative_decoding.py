"""What is made beside the prefill is left behind by nobody, and what the verifier says of itself is kept to."""

import threading
from typing import Any

import pytest

from drafter_client.generation import speculative_decoding
from drafter_client.generation.speculative_decoding import Preparation
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.options import Options
from specpair.drafters.run.executors import Executor
from specpair.speculation.draft import TreeLimits
from specpair.speculation.policy.controller import SpeculationController
from tests.drafter_client.http import bodies
from tests.drafter_client.support import generate, toy_drafter


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


def test_what_the_verifier_takes_of_a_tree_is_told_to_the_controller(
    client: VerifierClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[TreeLimits]()

    class Told(SpeculationController):
        def __init__(self, *args: Any, tree_limits: TreeLimits, **options: Any) -> None:
            told.append(tree_limits)
            super().__init__(*args, tree_limits=tree_limits, **options)

    monkeypatch.setattr(speculative_decoding, "SpeculationController", Told)
    info = bodies.model_info(name="scripted-1", context_length=1024, max_tree_leaves=8, max_tree_nodes=16)
    generate(client, toy_drafter(), info=info, max_tokens=4)
    assert told == [TreeLimits(leaves=8, nodes=16)]
