"""Texts that the server writes by itself, from prompt to end: each with one request, and a session of no table."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from weakref import WeakSet

from starlette.types import Receive

from speculation.errors import FusedUnavailable, InvalidRequest, SpecPairError
from speculation.wire import GenerateRequest
from verifier_server.access import Caller
from verifier_server.departures import Departures, Waiting, hung_up
from verifier_server.engine import Engine
from verifier_server.fused import DraftCounts, Fusion
from verifier_server.jobs import Answer, Job, Told
from verifier_server.outbox import Outbox
from verifier_server.prompts import make_session
from verifier_server.sessions import Session, SessionTable

Start = Callable[[Told], Callable[[], None]]  # begins a text and has each answer told; returns what calls it off


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Writing:
    """A text to be written."""

    engine: Engine
    session: Session
    start: Start
    counts: DraftCounts | None = None  # of a text that is drafted here, too


class Generating:
    """Writes texts, which count as sessions meanwhile. Used in the event loop."""

    def __init__(self, outbox: Outbox, sessions: SessionTable) -> None:
        """`outbox`: the way that answers take."""
        self._outbox, self._sessions = outbox, sessions
        self._departures = Departures()
        self._open: WeakSet[Writing] = WeakSet()  # one that nobody comes to write, as its client has left, drops out

    @property
    def under_way(self) -> int:
        """How many texts there are, those included that wait for a row of the draft model."""
        return len(self._open)

    def open(self, request: GenerateRequest, caller: Caller, engine: Engine, fusion: Fusion | None) -> Writing:
        """A text as it was asked for. Raises FusedUnavailable without a `fusion`, Overloaded, and for its prompt what
        `make_session` does."""
        if request.mode == "fused" and fusion is None:
            raise FusedUnavailable(
                "mode fused: this verifier has no draft model. Start it with VERIFIER_DRAFT_MODEL (or with "
                "VERIFIER_DRAFT_BACKEND=ngram), or ask for mode target"
            )
        if request.draft_n is not None and request.draft_n > engine.max_drafts:
            raise InvalidRequest(
                f"draft_n: {request.draft_n} are more than the {engine.max_drafts} drafts that this verifier judges "
                "at once",
                param="draft_n",
            )
        self._sessions.make_room(caller, self.under_way)
        session = make_session(engine.backend, secrets.token_hex(16), request)
        if request.mode == "fused" and fusion is not None:
            counts = DraftCounts(fusion.draft.name)
            text = Writing(engine, session, partial(fusion.start, engine, session, request.draft_n, counts), counts)
        else:
            text = Writing(engine, session, partial(_decode, engine, session))
        self._open.add(text)
        return text

    async def last(self, text: Writing, receive: Receive) -> Answer:
        """Write `text`: the last answer. It is given up when the client hangs up, as `receive` tells."""
        future: asyncio.Future[Answer | SpecPairError] = asyncio.get_running_loop().create_future()

        def settle(result: Answer | SpecPairError) -> None:
            if not future.done():  # the client may be gone
                future.set_result(result)

        def told(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError) or result.finish_reason is not None:
                self._outbox.put(partial(settle, result))

        with Waiting(self._departures, receive, lambda: settle(hung_up())), self._written(text, told):
            result = await future
        if isinstance(result, SpecPairError):
            raise result
        return result

    async def each(self, text: Writing, silence: float) -> AsyncGenerator[Answer | None]:
        """Write `text`: its answers as passes end, None after each `silence` seconds without one.

        Closing the iterator gives it up.
        """
        results: asyncio.Queue[Answer | SpecPairError] = asyncio.Queue()
        with self._written(text, lambda result: self._outbox.put(partial(results.put_nowait, result))):
            finished = False
            while not finished:
                result = None
                with suppress(TimeoutError):
                    async with asyncio.timeout(silence):
                        result = await results.get()
                if isinstance(result, SpecPairError):
                    raise result
                finished = result is not None and result.finish_reason is not None
                yield result
                if not results.empty():  # an engine faster than this stream must not keep the loop from all else
                    await asyncio.sleep(0)

    @contextmanager
    def _written(self, text: Writing, told: Told) -> Iterator[None]:
        """While this block runs, `text` is written and counts as a session; then its row is free, and what waits of it
        is dropped."""
        try:
            call_off = text.start(told)
            try:
                yield
            finally:
                call_off()
        finally:
            self._open.discard(text)
            text.engine.forget(text.session)


def _decode(engine: Engine, session: Session, told: Told) -> Callable[[], None]:
    """Write a text by the target alone, as `Fusion.start` does with drafts."""
    job = Job(session, session.prompt_len, [], told, until_end=True)
    engine.submit(job)

    def call_off() -> None:
        job.cancelled = True

    return call_off
