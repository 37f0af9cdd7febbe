"""Whole texts (`POST /generate`), by the target alone or with server-side drafting, each in a session."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary, finalize

from specpair.http_service.keys.access import Caller
from specpair.protocol.errors import FusedUnavailable, InvalidRequest, SessionConflict, SpecPairError
from specpair.protocol.messages import GenerateRequest
from specpair.speculation.draft import Draft
from verifier_server.engine.arrived_drafts import Answer, OnAnswer, Request
from verifier_server.engine.interface import TokenEngine
from verifier_server.generation.engine_client import Accounting, EngineClient, answered
from verifier_server.generation.fused_text import DraftCounts
from verifier_server.generation.prompts import make_session, prediction_of
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

Start = Callable[[OnAnswer], Callable[[], None]]  # starts a text, reports its answers; returns a function to cancel it


@dataclass(slots=True, eq=False, weakref_slot=True)
class GenerationTask:
    """A text before or during its generation."""

    engine: TokenEngine
    session: Session
    position: int  # position of the first token of the first answer
    start: Start
    counts: DraftCounts | None  # draft statistics; None without server-side drafting
    leave: Callable[[], object] = lambda: None  # tells the session table that the request is over
    end: Callable[[SpecPairError], None] | None = None  # ends the text with an error; None unless it is being generated
    failure: SpecPairError | None = None  # why it was cancelled before it was started


class Generator:
    """Generates whole texts. Used in the event loop."""

    def __init__(self, client: EngineClient, sessions: SessionTable, accounting: Accounting) -> None:
        self._client, self._sessions, self._accounting = client, sessions, accounting
        self._latest: WeakValueDictionary[Session, GenerationTask] = WeakValueDictionary()

    @property
    def under_way(self) -> int:
        """How many texts are open, including those that wait for a slot of the draft model."""
        return len(self._latest)

    def open(
        self,
        request: GenerateRequest,
        session_id: str | None,
        caller: Caller,
        engine: TokenEngine,
        drafting: ServerDrafting | None,
    ) -> GenerationTask:
        """Make a text for `request`, and end the text that an earlier request generates in the same session.

        The text counts as a request of its session until it is generated, or dropped.
        `drafting`: server-side drafting for this request.

        Raises FusedUnavailable in mode fused without `drafting`, InvalidRequest, Overloaded, SessionConflict, and what
        `make_session` and `prediction_of` do.
        """
        if request.mode == "fused" and drafting is None:
            raise FusedUnavailable(
                "mode fused: this verifier has no draft model. Start it with VERIFIER_DRAFT_MODEL (or with "
                "VERIFIER_DRAFT_BACKEND=ngram), send a prediction of the text, or ask for mode target"
            )
        most = engine.info.max_drafts
        if request.draft_n is not None and request.draft_n > most:
            what = f"{request.draft_n} is more than the {most} draft tokens that this verifier judges at once"
            raise InvalidRequest.at("draft_n", what)
        prediction = prediction_of(engine.info, request)
        request = request.model_copy(update={"session_id": None})
        session = self._sessions.open(
            session_id, caller, request, lambda new_id: make_session(engine.info, new_id, request), latest=False
        )
        self.cancel(session)
        session.self_continue = False  # the target decodes on request; server-side drafting says otherwise, if so
        self._sessions.use(session)
        position, counts = session.prompt_len + len(request.committed_ids), None
        start: Start = partial(_decode, engine, session, position)
        if request.mode == "fused" and drafting is not None:
            counts = DraftCounts(draft_model=drafting.draft.name, predicted=prediction is not None)
            start = partial(drafting.start, engine, session, request.draft_n, counts, position, prediction=prediction)
        self._latest[session] = text = GenerationTask(engine, session, position, start, counts)
        # If the client disconnects before the text is started, garbage collection of the text makes this call.
        text.leave = leave = finalize(text, self._sessions.leave, session)
        leave.atexit = False
        return text

    def cancel(self, session: Session, error: SpecPairError | None = None) -> None:
        """End the text that `session` is generating, if any; by default because a later request continues it."""
        text = self._latest.pop(session, None)
        if text is not None:
            text.failure = error or SessionConflict(
                f"a later request continues session {session.id}: the rest of the text is in its reply"
            )
            if text.end is not None:
                text.end(text.failure)

    async def last(self, text: GenerationTask) -> Answer:
        """Generate `text`; returns the last answer. The text ends when the wait is cancelled."""
        future: asyncio.Future[Answer | SpecPairError]
        future, settle = self._client.future()

        def on_answer(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError) or result.finish_reason is not None:
                settle(result)

        try:
            with self._generating(text, on_answer):
                return answered(await future)
        finally:
            self.forget(text.session)  # even if unfinished: without a reply the client does not know the id

    def begin(self, text: GenerationTask) -> "Answers":
        """Begin to generate `text`, and return its answers, which have to be closed. Raises what the engine raises."""
        return Answers(self, text)

    @contextmanager
    def _generating(self, text: GenerationTask, on_answer: OnAnswer) -> Iterator[None]:
        """Generate `text` while the block runs. Raises `text.failure` if it was cancelled before."""
        try:
            if text.failure is not None:
                raise text.failure

            def counted(result: Answer | SpecPairError) -> None:
                if not isinstance(result, SpecPairError):
                    self._client.put(partial(self._accounting.answered, text.session, result))
                on_answer(result)

            cancel = text.start(counted)

            def end(error: SpecPairError) -> None:
                cancel()
                on_answer(error)
                self._client.deliver()

            try:
                text.end = end
                yield
            finally:
                text.end = None
                cancel()
        finally:
            if self._latest.get(text.session) is text:
                del self._latest[text.session]
            text.leave()

    def forget(self, session: Session) -> None:
        """Remove a session with a generated id, unless a later request has used the id."""
        if not session.lease.named:
            self._sessions.discard(session)


class Answers:
    """The answers of a text that is being generated, each when its pass has ended."""

    def __init__(self, generator: Generator, text: GenerationTask) -> None:
        """Begin the text. Raises what the engine raises."""
        self.finished = False
        self._generator, self._session = generator, text.session
        self._results: asyncio.Queue[Answer | SpecPairError] = asyncio.Queue()
        with ExitStack() as stack:
            put = self._results.put_nowait
            stack.enter_context(generator._generating(text, lambda result: generator._client.put(partial(put, result))))
            self._open = stack.pop_all()

    async def next(self, silence: float | None) -> Answer | None:
        """The next answer; None after `silence` seconds without one. Raises the error with which the text ended."""
        if not self._results.empty():  # an engine faster than its reader must not block the event loop
            await asyncio.sleep(0)
        result = None
        with suppress(TimeoutError):
            async with asyncio.timeout(silence):
                result = await self._results.get()
        if result is None:
            return None
        answer = answered(result)
        self.finished = answer.finish_reason is not None
        return answer

    def close(self) -> None:
        """Cancel the text, unless it has ended. May be called again."""
        self._open.close()
        if self.finished:
            self._generator.forget(self._session)


def _decode(engine: TokenEngine, session: Session, position: int, on_answer: OnAnswer) -> Callable[[], None]:
    """Generate a text by the target alone; `on_answer` gets each answer. Returns a function that cancels the text."""
    request = Request(session, Draft(position), on_answer, until_end=True)
    engine.submit(request)

    def cancel() -> None:
        request.cancelled = True

    return cancel
