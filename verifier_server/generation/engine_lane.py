"""The lane to the engine of this process: server-side drafting has its drafts judged over it."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from specpair.drafters.run.events import Streamed
from specpair.protocol.errors import SpecPairError, UnknownSession
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy
from verifier_server.engine.port import TokenEngine
from verifier_server.engine.requests import Answer, Request
from verifier_server.generation.engine_client import disconnected
from verifier_server.sessions import Session


class EngineLane:
    """One request at a time for one session. See `specpair.drafters.run.ports.Lane`.

    `abort` ends what all lanes of the text have under way, and all that they begin later.
    """

    def __init__(self, engine: TokenEngine, session: Session, all_lanes: "list[EngineLane] | None" = None) -> None:
        self._engine, self._session = engine, session
        self._request: Request | None = None  # the latest one
        self._answers: SimpleQueue[Answer | SpecPairError] = SimpleQueue()
        self._news = threading.Event()
        self._all = all_lanes if all_lanes is not None else []
        self._all.append(self)
        self._aborted: bool = self._all[0] is not self and self._all[0]._aborted

    def another(self) -> "EngineLane":
        return EngineLane(self._engine, self._session, self._all)

    def connect(self) -> None:
        pass

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
        request = Request(
            self._session,
            draft,
            self._answers.put,
            policy=policy,
            admitted=admitted,
        )
        self._request = request
        if self._aborted:  # looked at after `_request` is set, so that `abort` drops every later request
            raise disconnected()
        (submit or self._engine.submit)(request)
        return self._answer

    def _answer(self) -> Answer:
        answer = self._answers.get()
        if isinstance(answer, SpecPairError):
            raise answer
        return answer

    def listen(self, position: int, report: Callable[[Streamed], None]) -> None:
        """Raises InvalidRequest after `abort`, UnknownSession once the session is removed, and the engine's error."""
        session = self._session
        with session.watched(self._news.set):
            while True:
                # The engine's thread appends tokens before it sets the end. So read the end first.
                finish_reason, gone, ended = session.finish_reason, session.gone, self._engine.ended
                for run in session.news(position):
                    position = run.position + len(run.tokens)
                    report(Streamed(run.position, run.tokens, run.details, None, run.forward))
                if finish_reason is not None:
                    report(Streamed.end(position, finish_reason))
                    return
                if gone:
                    raise UnknownSession(f"session {session.id} was deleted while its text was written")
                if ended is not None:
                    raise ended
                if self._aborted:
                    raise disconnected()
                self._news.wait()
                self._news.clear()

    def abort(self) -> None:
        for lane in self._all:
            lane._abort()

    def _abort(self) -> None:
        self._aborted = True
        if self._request is not None:
            self._request.cancelled = True
        self._answers.put(disconnected())  # the engine drops the request without an answer
        self._news.set()

    def traffic(self) -> tuple[int, int]:
        return 0, 0

    def close(self) -> None:
        pass
