"""The lane to the engine of this process: server-side drafting has its drafts judged over it."""

from collections.abc import Callable
from queue import SimpleQueue

from specpair.protocol.errors import SpecPairError
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy
from verifier_server.engine.port import TokenEngine
from verifier_server.engine.requests import Answer, Request
from verifier_server.generation.engine_client import disconnected
from verifier_server.sessions import Session


class EngineLane:
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

    def abort(self) -> None:
        """Make the request under way fail, and every later one. May be called from any thread."""
        self._aborted = True
        if self._request is not None:
            self._request.cancelled = True
        self._answers.put(disconnected())  # the engine drops the request without an answer
