"""Texts that the server writes by itself, from prompt to end: each with one request, and a session of no table."""

import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial

from starlette.types import Receive

from speculation.errors import FusedUnavailable, InvalidRequest
from speculation.wire import GenerateRequest
from verifier_server.asking import Asking, Start, handed_in
from verifier_server.engine import Engine
from verifier_server.fused import Fusion, Speculation
from verifier_server.jobs import Answer, Job
from verifier_server.prompts import make_session
from verifier_server.sessions import Session, SessionTable


@dataclass(frozen=True, slots=True)
class Text:
    """A text to be written."""

    engine: Engine
    session: Session
    start: Start
    speculation: Speculation | None = None  # of a text that is drafted here, too


class Generating:
    """Writes texts, which count as sessions meanwhile. Used in the event loop."""

    def __init__(self, asking: Asking, sessions: SessionTable) -> None:
        self._asking, self._sessions = asking, sessions
        self.under_way = 0  # those that wait for a row of the draft model, too

    def open(self, request: GenerateRequest, engine: Engine, fusion: Fusion | None) -> Text:
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
        self._sessions.check_room(self.under_way)
        session = make_session(engine.backend, secrets.token_hex(16), request)
        if request.mode == "fused" and fusion is not None:
            counts = Speculation(fusion.draft.name)
            return Text(engine, session, partial(fusion.start, engine, session, request.draft_n, counts), counts)
        return Text(
            engine,
            session,
            lambda told: handed_in(engine, Job(session, session.prompt_len, [], told, until_end=True)),
        )

    async def last(self, text: Text, receive: Receive) -> Answer:
        """Write `text`: the last answer. It is given up when the client hangs up, as `receive` tells."""
        with self._written(text):
            return await self._asking.last(text.start, receive)

    async def each(self, text: Text) -> AsyncGenerator[Answer]:
        """Write `text`: its answers as passes end. Closing the iterator gives it up."""
        with self._written(text):
            async with aclosing(self._asking.each(text.start)) as answers:
                async for answer in answers:
                    yield answer

    @contextmanager
    def _written(self, text: Text) -> Iterator[None]:
        """While this block runs, `text` counts as a session; then its row is free, and what waits of it is dropped."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            text.engine.forget(text.session)
