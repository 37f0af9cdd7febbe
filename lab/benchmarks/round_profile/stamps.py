"""Moments, noted in both processes on the machine's one monotonic clock, by wrapping functions.

`application` writes the verifier's to the file `PROFILE_STAMPS` when a text's session ends, `watched` collects the
drafter's. A moment is of a text position (tokens in all) or of a draft sent (position and number of draft tokens).
"""

import functools
import itertools
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fastapi import FastAPI
from httpcore._backends.sync import SyncStream
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from drafter_client.generation.speculative_decoding import RemoteLane
from lab.simulator.paced import engine as paced
from specpair.drafters.run import executors, reactor
from verifier_server.engine.engine import Engine
from verifier_server.engine.scheduler import Scheduler
from verifier_server.generation.verify import Verifying

STAMPS = "PROFILE_STAMPS"
_clock = time.perf_counter

Stamps = dict[str, dict[Any, float]]  # what happened, of which position or draft: when


def read(lines: str) -> Stamps:
    """The moments of one text that `application` has written."""
    stamps: Stamps = defaultdict(dict)
    for what, which, when in map(json.loads, lines.splitlines()):
        stamps[what].setdefault(tuple(which) if isinstance(which, list) else which, when)
    return stamps


@contextmanager
def watched() -> Iterator[Stamps]:
    """Note the drafter's moments while the block lasts."""
    stamps: Stamps = defaultdict(dict)
    last = threading.local()  # when the present thread last began to write to a socket, and last read from one
    steps = itertools.count()

    def commit(run: Any, position: int, brought: Any, now: float, answered: Any = None) -> None:
        place = position + len(brought.tokens)
        if answered is not None:
            stamps["taken in"].setdefault(_named(answered.draft), _clock())
        stamps["told"].setdefault(place, _clock())
        commits(run, position, brought, now, answered)
        stamps["known"].setdefault(place, _clock())

    def verify(lane: Any, draft: Any, *rest: Any) -> Any:
        response = verifies(lane, draft, *rest)
        stamps["sent"].setdefault(_named(draft), last.writes)
        stamps["come"].setdefault(_named(draft), last.read)
        return response

    def write(stream: SyncStream, *rest: Any) -> None:
        last.writes = _clock()
        writes(stream, *rest)

    def read(stream: SyncStream, *rest: Any) -> bytes:
        found: bytes = reads(stream, *rest)
        last.read = _clock()
        return found

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
            stamps["decided"].setdefault(_named(in_flight_draft.draft), _clock())
            super().send(in_flight_draft)

    commits, verifies = reactor.Reactor._commit, RemoteLane.verify
    writes, reads = SyncStream.write, SyncStream.read
    with ExitStack() as stack:
        for owner, name, instead in (
            (reactor.Reactor, "_commit", commit),
            (RemoteLane, "verify", verify),
            (SyncStream, "write", write),
            (SyncStream, "read", read),
            (executors, "ThreadedExecutor", Watched),
        ):
            stack.enter_context(patch.object(owner, name, instead))
        yield stamps


def application() -> FastAPI:
    """A paced verifier that notes its moments."""
    file, moments = Path(os.environ[STAMPS]), list[tuple[str, Any, float]]()
    arrived = 0.0  # when bytes last came to the event loop
    answered: Any = None  # the draft whose reply is being written

    def note(what: str, which: Any, when: float) -> None:
        moments.append((what, which, when))

    def conclude(scheduler: Scheduler, plan: Any, rows: Any, began: float, ended: float) -> None:
        concludes(scheduler, plan, rows, began, ended)
        told = _clock()
        for part in plan.parts:
            note("over", len(part.sequence.session.tokens), ended)
            if part.run is not None:
                note("judged", _named(part.run.draft), ended)
                note("told", _named(part.run.draft), told)

    def plan(scheduler: Scheduler, now: float) -> Any:
        planned = plans(scheduler, now)
        for part in () if planned is None else planned.parts:
            if part.run is not None:
                note("begun", _named(part.run.draft), _clock())
        return planned

    def submit(engine: Engine, *requests: Any) -> None:
        for request in requests:
            note("submitted", _named(request.draft), _clock())
        submits(engine, *requests)

    def forget(engine: Engine, session: Any) -> None:
        forgets(engine, session)
        file.write_text("".join(json.dumps(each) + "\n" for each in moments), encoding="utf-8")
        moments.clear()

    def data_received(connection: Any, data: bytes) -> None:
        nonlocal arrived
        arrived = _clock()
        receives(connection, data)

    async def one(verifying: Verifying, engine: Any, request: Any, *rest: Any) -> Any:
        nonlocal answered
        draft = request.position, len(request.draft_tokens)
        note("arrived", draft, arrived)
        note("read", draft, _clock())
        answer = await judges(verifying, engine, request, *rest)
        note("answered", draft, _clock())
        answered = draft
        return answer

    async def send(cycle: Any, message: Any) -> None:
        nonlocal answered
        await sends(cycle, message)
        if answered is not None and message["type"] == "http.response.body":
            note("written", answered, _clock())
            answered = None

    plans, concludes, submits, forgets = Scheduler.plan, Scheduler.conclude, Engine.submit, Engine.forget
    receives, judges, sends = HttpToolsProtocol.data_received, Verifying.one, RequestResponseCycle.send
    for owner, name, instead in (
        (Scheduler, "plan", plan),
        (Scheduler, "conclude", conclude),
        (Engine, "submit", submit),
        (Engine, "forget", forget),
        (HttpToolsProtocol, "data_received", data_received),
        (Verifying, "one", one),
        (RequestResponseCycle, "send", send),
    ):
        setattr(owner, name, functools.wraps(getattr(owner, name))(instead))
    return paced.application()


def _named(draft: Any) -> tuple[int, int]:
    return draft.position, len(draft)
