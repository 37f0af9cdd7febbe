"""Texts that the server writes by itself, to their end, each at the request of a client and in a session."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary, finalize

from starlette.types import Receive

from speculation.errors import FusedUnavailable, InvalidRequest, SessionConflict, SpecPairError
from speculation.protocol.messages import GenerateRequest
from verifier_server.access import Caller
from verifier_server.engine.engine import Engine
from verifier_server.engine.requests import Answer, Request, Told
from verifier_server.generation.disconnects import DisconnectWatcher, WatchedRequest, hung_up
from verifier_server.generation.outbox import Outbox
from verifier_server.generation.prompts import make_session
from verifier_server.generation.server_drafting import DraftCounts, ServerDrafting
from verifier_server.sessions import Session, SessionTable

GRACE = 60.0  # seconds that a session whose id was made here stays for a client whose stream was cut
Start = Callable[[Told], Callable[[], None]]  # begins a text and has each answer told; returns what calls it off


@dataclass(slots=True, eq=False, weakref_slot=True)
class GeneratedText:
    """A text to be written."""

    engine: Engine
    session: Session
    position: int  # where the first answer begins
    start: Start
    counts: DraftCounts | None  # of a text that is drafted here, too
    leave: Callable[[], object] = lambda: None  # has it count no more as a request under way
    end: Callable[[SpecPairError], None] | None = None  # ends it with an error, while it is written
    failure: SpecPairError | None = None  # it was called off before it was begun


class Generator:
    """Writes texts. Used in the event loop."""

    def __init__(self, outbox: Outbox, sessions: SessionTable) -> None:
        """`outbox`: the way that answers take."""
        self._outbox, self._sessions = outbox, sessions
        self._departures = DisconnectWatcher()
        self._latest: WeakValueDictionary[Session, GeneratedText] = WeakValueDictionary()

    @property
    def under_way(self) -> int:
        """How many texts there are, those included that wait for a row of the draft model."""
        return len(self._latest)

    def open(
        self,
        request: GenerateRequest,
        session_id: str | None,
        caller: Caller,
        engine: Engine,
        fusion: ServerDrafting | None,
    ) -> GeneratedText:
        """A text as it was asked for; one that an earlier request is writing in this session ends. It counts as a
        request under way until it is written, or dropped.

        Raises FusedUnavailable without a `fusion`, Overloaded, SessionConflict, and for its prompt what `make_session`
        does.
        """
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

        def make(new_id: str) -> Session:
            session = make_session(engine.backend, new_id, request)
            session.grace = GRACE if session_id is None else None
            return session

        request = request.model_copy(update={"session_id": None})
        session = self._sessions.open(session_id, caller, request, make, latest=False)
        self.call_off(session)
        self._sessions.use(session)
        position = session.prompt_len + len(request.committed_ids)
        if request.mode == "fused" and fusion is not None:
            counts = DraftCounts(fusion.draft.name)
            start = partial(fusion.start, engine, session, request.draft_n, counts, position=position)
            text = GeneratedText(engine, session, position, start, counts)
        else:
            text = GeneratedText(engine, session, position, partial(_decode, engine, session, position), None)
        self._latest[session] = text
        # Of one that nobody comes to write, as its client has left, it is called when that is forgotten.
        text.leave = leave = finalize(text, self._sessions.leave, session)
        leave.atexit = False
        return text

    def call_off(self, session: Session, error: SpecPairError | None = None) -> None:
        """End what is being written in `session`, if anything is: by default as its text goes on elsewhere."""
        text = self._latest.pop(session, None)
        if text is not None:
            text.failure = error or SessionConflict(
                f"session {session.id} goes on with a later request, which has the rest of its text"
            )
            if text.end is not None:
                text.end(text.failure)

    async def last(self, text: GeneratedText, receive: Receive) -> Answer:
        """Write `text`: the last answer. It is given up when the client hangs up, as `receive` tells."""
        future: asyncio.Future[Answer | SpecPairError] = asyncio.get_running_loop().create_future()

        def settle(result: Answer | SpecPairError) -> None:
            if not future.done():  # the client may be gone
                future.set_result(result)

        def told(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError) or result.finish_reason is not None:
                self._outbox.put(partial(settle, result))

        try:
            with WatchedRequest(self._departures, receive, lambda: settle(hung_up())), self._written(text, told):
                result = await future
        finally:
            self._forget(text.session)  # finished or not: who has had no reply does not know an id that was made here
        if isinstance(result, SpecPairError):
            raise result
        return result

    async def each(self, text: GeneratedText, silence: float) -> AsyncGenerator[Answer | None]:
        """Write `text`: its answers as passes end, None after each `silence` seconds without one.

        Closing the iterator gives it up.
        """
        results: asyncio.Queue[Answer | SpecPairError] = asyncio.Queue()
        finished = False
        try:
            with self._written(text, lambda result: self._outbox.put(partial(results.put_nowait, result))):
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
        finally:
            if finished:
                self._forget(text.session)

    @contextmanager
    def _written(self, text: GeneratedText, told: Told) -> Iterator[None]:
        """While this block runs, `text` is written. Raises why it is not, if it was called off before."""
        try:
            if text.failure is not None:
                raise text.failure
            call_off = text.start(told)

            def end(error: SpecPairError) -> None:
                call_off()
                told(error)
                self._outbox.deliver()

            try:
                text.end = end
                yield
            finally:
                text.end = None
                call_off()
        finally:
            if self._latest.get(text.session) is text:
                del self._latest[text.session]
            text.leave()

    def _forget(self, session: Session) -> None:
        """Let go of a session whose id was made here, and which nobody has asked for by that id."""
        if session.grace is not None:
            self._sessions.discard(session)


def _decode(engine: Engine, session: Session, position: int, told: Told) -> Callable[[], None]:
    """Write a text by the target alone, as `ServerDrafting.start` does with drafts."""
    request = Request(session, position, [], told, until_end=True)
    engine.submit(request)

    def call_off() -> None:
        request.cancelled = True

    return call_off
