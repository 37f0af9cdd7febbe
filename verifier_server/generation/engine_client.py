"""Sends requests to the engine, awaits answers, counts them for keys, and drops requests of lost clients."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from specpair.http_service.keys.gate import Accounts
from specpair.protocol.errors import InvalidRequest, SpecPairError
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import UNSAID, RejectionPolicy
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.interface import TokenEngine
from verifier_server.sessions import Session

T = TypeVar("T")


class EngineClient:
    """Sends requests of clients to an engine, and carries answers to the event loop, with one wake-up per pass.

    `put` and `deliver` may be called from any thread, all else in the event loop. `attach` comes before the first
    `put`.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: deque[Callable[[], object]] = deque()
        self._asked: list[Request] = []  # in this turn of the loop

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that makes the calls."""
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Add a call. Calls are made in the event loop, in order, after the next `deliver`."""
        self._calls.append(call)

    def deliver(self) -> None:
        """Wake the loop if calls are due."""
        if self._calls and self._loop is not None:
            self._loop.call_soon_threadsafe(self._make)

    def future(self) -> tuple[asyncio.Future[T], Callable[[T], None]]:
        """A future, and a function that sets its result from any thread, as `put` does. The first result counts."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(result: T) -> None:
            if not future.done():
                future.set_result(result)

        return future, lambda result: self.put(partial(settle, result))

    async def results(self, engine: TokenEngine, requests: Sequence[Request]) -> list[Answer | SpecPairError]:
        """Hand requests to the engine together, so that they can share a pass. Returns the result of each.

        All requests of a turn of the loop go together: they wake the engine's thread once. All of this call are dropped
        if the wait is cancelled.
        """
        futures = []
        for request in requests:
            future, request.done = self.future()
            futures.append(future)
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._submit, engine)
        self._asked += requests
        try:
            return [await future for future in futures]
        except asyncio.CancelledError:
            for request in requests:
                request.cancelled = True
            raise

    def _submit(self, engine: TokenEngine) -> None:
        asked, self._asked = self._asked, []
        engine.submit(*asked)

    async def answer(self, engine: TokenEngine, request: Request) -> Answer:
        """The answer to one request, as in `results`. Raises the error that the engine answers with.

        What the record answers needs no engine, unless the engine decodes the session by itself: then it has to know
        how far its client is.
        """
        if not request.session.self_continue and engine.ended is None and (known := request.recorded()) is not None:
            return known
        (result,) = await self.results(engine, (request,))
        return answered(result)

    def _make(self) -> None:
        # Calls added meanwhile get a turn of their own, so that the loop can do other work in between.
        for _ in range(len(self._calls)):
            self._calls.popleft()()


def answered(result: Answer | SpecPairError) -> Answer:
    """An answer. Raises the error that the engine answers with."""
    if isinstance(result, SpecPairError):
        raise result
    return result


def disconnected() -> InvalidRequest:
    """The error of a request whose client has disconnected."""
    return InvalidRequest("the connection was closed before the answer came")


class EngineConnection:
    """One request at a time for one session. See `specpair.drafters.run.events.DraftVerifier`."""

    def __init__(self, engine: TokenEngine, session: Session) -> None:
        self._engine, self._session = engine, session
        self._request: Request | None = None  # the latest one
        self._answers: SimpleQueue[Answer | SpecPairError] = SimpleQueue()
        self._aborted = False

    def verify(self, draft: Draft, policy: RejectionPolicy = UNSAID) -> Answer:
        """Raises InvalidRequest after `abort`, and the error that the engine answers with."""
        return self.begin(draft, policy, admitted=True)()

    def begin(
        self,
        draft: Draft,
        policy: RejectionPolicy = UNSAID,
        *,
        admitted: bool = False,
        submit: Callable[[Request], object] | None = None,
    ) -> Callable[[], Answer]:
        """Begin to have a draft judged; returns a function that waits for the answer. Both raise what `verify` does.

        `admitted`: whether the engine has answered a request of this text.
        `submit`: hands the request to the engine; None: that is done at once.
        """
        self._request = request = Request(self._session, draft, self._answers.put, policy=policy, admitted=admitted)
        if self._aborted:  # looked at after `_request` is set, so that `abort` drops every later request
            raise disconnected()
        (submit or self._engine.submit)(request)
        return lambda: answered(self._answers.get())

    @property
    def has_answer(self) -> bool:
        """Whether the answer to the request under way has come, or an error."""
        return not self._answers.empty()

    def abort(self) -> None:
        """Make the request under way fail, and every later one. May be called from any thread."""
        self._aborted = True
        if self._request is not None:
            self._request.cancelled = True
        self._answers.put(disconnected())  # the engine drops the request without an answer


class Accounting:
    """Counts for the keys what the engine did in their sessions. Used in the event loop.

    Each committed token counts once, with the first answer that comes after it: also one of self-continuation, and
    also if several answers hold it.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def answered(self, session: Session, answer: Answer) -> None:
        """Count the tokens of `session` up to an answer. Call it once per answer."""
        ran = answer.round
        self._count(session, answer.total_tokens, answer.judged, 0 if ran is None else ran.accepted)

    def over(self, session: Session) -> None:
        """Count the tokens that came after the last answer: the session is removed."""
        self._count(session, len(session.tokens), 0, 0)

    def _count(self, session: Session, total: int, drafted: int, accepted: int) -> None:
        lease = session.lease
        new = max(0, total - lease.counted)
        first = new > 0 and lease.counted == session.decided_from
        lease.counted += new
        if new or drafted:
            self._accounts.of(lease.key).count(
                self._accounts.clock(),
                prompt=session.prompt_len if first else 0,
                generated=new,
                drafted=drafted,
                accepted=accepted,
            )
