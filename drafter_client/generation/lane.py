"""The lane to a verifier on another machine: a connection whose responses are checked."""

from collections.abc import Callable
from contextlib import suppress

from drafter_client.errors import ConnectionLost, DrafterError
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import STREAM, ResponseBounds
from specpair.drafters.run.events import Streamed
from specpair.protocol.responses import StreamEnd, VerifyResponse
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy


class RemoteLane:
    """A connection for one session of a verifier. See `specpair.drafters.run.events.VerifierConnection`."""

    def __init__(self, client: VerifierClient, session_id: str, bounds: ResponseBounds, *, trees: bool = False) -> None:
        """`bounds`: of the text, which responses are checked by.
        `trees`: whether the verifier takes trees; else of each its likeliest chain is sent.
        """
        self._client, self._session_id, self._bounds, self._trees = client, session_id, bounds, trees
        self._aborted = False

    def another(self) -> "RemoteLane":
        return RemoteLane(self._client.another(), self._session_id, self._bounds, trees=self._trees)

    def connect(self) -> None:
        with suppress(DrafterError):  # the first request raises the same error
            self._client.connection.connect()

    def verify(self, draft: Draft, policy: RejectionPolicy = UNSAID) -> VerifyResponse:
        """Raises BadReply, and what the client raises."""
        response = self._client.verify(self._session_id, draft if self._trees else draft.likeliest(), policy)
        self._bounds.check("/verify", draft.position, response.tokens)
        self._bounds.details("/verify", response.tokens, response)
        return response

    def listen(self, position: int, report: Callable[[Streamed], None]) -> None:
        """Raises BadReply, and what the client raises."""
        ended = False

        def follow() -> None:
            nonlocal position, ended
            began = position
            try:
                for event in self._client.stream(self._session_id, position):
                    if isinstance(event, StreamEnd):
                        ended = True
                        report(Streamed.end(position, event.finish_reason))
                        return
                    self._bounds.check(STREAM, event.position, event.tokens)
                    details = self._bounds.details(STREAM, event.tokens, event)
                    position = event.position + len(event.tokens)
                    report(Streamed(event.position, event.tokens, details, None, event.forward))
            except ConnectionLost:
                if position == began:
                    raise
                return  # it broke after it had brought tokens, so a new series of retries begins
            raise ConnectionLost(f"the event stream of {self._client.url} ended before the text did")

        while not (ended or self._aborted):
            self._client.retry_broken_connection(follow)

    def abort(self) -> None:
        self._aborted = True
        self._client.abort()

    def traffic(self) -> tuple[int, int]:
        traffic = self._client.connection.traffic
        return traffic.sent, traffic.received

    def close(self) -> None:
        self._client.close()
