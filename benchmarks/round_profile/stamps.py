"""Moments of a round, noted in both processes on the machine's one monotonic clock, by wrapping functions.

`application` writes the verifier's to the file `PROFILE_STAMPS`, `watched` collects the drafter's. A moment is of a
text position (tokens in all) or of a draft sent (position and number of draft tokens).
"""

import functools
import itertools
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fastapi import FastAPI

from simulator.paced import engine as paced
from specpair.drafters.run import executors, reactor
from verifier_server.engine.engine import Engine
from verifier_server.engine.scheduler import Scheduler

STAMPS = "PROFILE_STAMPS"
_clock = time.perf_counter

Stamps = dict[str, dict[Any, float]]  # what happened, of which position or draft: when


@contextmanager
def watched() -> Iterator[Stamps]:
    """Note the drafter's moments while the block lasts."""
    stamps: Stamps = defaultdict(dict)
    commit = reactor.Reactor._commit
    steps = itertools.count()

    def noted(run: Any, position: int, brought: Any, *rest: Any) -> Any:
        stamps["taken in"].setdefault(position + len(brought.tokens), _clock())
        result = commit(run, position, brought, *rest)
        stamps["known"].setdefault(position + len(brought.tokens), _clock())
        return result

    class Watched(executors.ThreadedExecutor):
        def __init__(self, lane: Any, drafter: Any, *rest: Any) -> None:
            expand = drafter.expand

            def timed(*args: Any) -> Any:
                number = next(steps)
                stamps["begun"][number] = _clock()
                result = expand(*args)
                stamps["drafted"][number] = _clock()
                return result

            drafter.expand = timed
            super().__init__(lane, drafter, *rest)

        def send(self, in_flight_draft: Any) -> None:
            stamps["decided"].setdefault((in_flight_draft.draft.position, len(in_flight_draft.draft)), _clock())
            super().send(in_flight_draft)

    with patch.object(reactor.Reactor, "_commit", noted), patch.object(executors, "ThreadedExecutor", Watched):
        yield stamps


def application() -> FastAPI:
    """A paced verifier that notes its moments."""
    file = open(os.environ[STAMPS], "a", encoding="utf-8", buffering=1)  # noqa: SIM115 for as long as the process lives

    def note(what: str, which: Any, when: float) -> None:
        file.write(json.dumps([what, which, when]) + "\n")

    conclude, submit = Scheduler.conclude, Engine.submit

    @functools.wraps(conclude)
    def concluded(scheduler: Scheduler, plan: Any, logits: Any, began: float, ended: float) -> None:
        conclude(scheduler, plan, logits, began, ended)
        told = _clock()
        for part in plan.parts:
            note("over", len(part.sequence.session.tokens), ended)
            note("told", len(part.sequence.session.tokens), told)

    def submitted(engine: Engine, *requests: Any) -> None:
        for request in requests:
            note("submitted", (request.position, len(request.draft)), _clock())
        submit(engine, *requests)

    Scheduler.conclude, Engine.submit = concluded, submitted  # type: ignore[method-assign, assignment]
    return paced.application()
