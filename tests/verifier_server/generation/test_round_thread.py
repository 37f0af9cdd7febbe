"""The thread of the rounds: which requests reach the engine."""

import threading
from typing import Any, cast

from specpair.speculation.draft import DraftSource
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.interface import TokenEngine
from verifier_server.generation.pass_costs import PassCosts
from verifier_server.generation.round_policy import RoundPolicy
from verifier_server.generation.round_thread import RoundThread
from verifier_server.generation.rounds import Rounds


def test_a_prefill_that_comes_while_others_are_submitted_is_submitted_too() -> None:
    """Each prefill arrives when the thread has taken the calls before it, and begins to submit."""
    coming = cast(list[Request], [object() for _ in range(8)])
    submitted: list[Request] = []
    all_submitted = threading.Event()

    class Engine:
        def submit(self, *requests: Request) -> None:
            submitted.extend(requests)
            if len(submitted) == 8:
                all_submitted.set()

    engine: TokenEngine = cast(Any, Engine())
    began = threading.Event()

    def clock() -> float:
        if began.is_set() and coming:
            thread.open(engine, coming.pop())
        return 0.0

    expected = set(coming)
    costs = PassCosts([0.01], {DraftSource.MODEL: 0.001})
    thread = RoundThread(Rounds(RoundPolicy(costs, overlaps=True)), clock, lambda: None)
    began.set()
    thread.open(engine, coming.pop())
    assert all_submitted.wait(10)
    thread.stop()
    assert set(submitted) == expected
