"""The verifier's REST interface as methods: typed responses, typed errors, retries of requests that are safe to repeat.

`VerifierClient.persist` retries after a broken connection, `call` also while the verifier is overloaded, and
`call_through_outages` also while the verifier is away (see `outages`).
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from drafter_client.errors import (
    BadKey,
    BadReply,
    ConnectionLost,
    DrafterError,
    ModelChanged,
    VerifierTimeout,
    VerifierUnreachable,
)
from drafter_client.http.fields import Fields
from drafter_client.http.outages import Health, Outages
from drafter_client.http.responses import STREAM, ModelInfo, PrefillResponse, StreamedTokens, StreamEnd, VerifyResponse
from drafter_client.http.transport import HttpTransport, Reply, Transport
from speculation.acceptance.draft_probs import Weights
from speculation.errors import (
    NotFound,
    Overloaded,
    RequestError,
    ServerError,
    SpecPairError,
    Unauthorized,
    UnknownSession,
    from_body,
)

# Seconds to wait for a response. A prefill may queue behind others and take long; a retry would only double the load.
_TIMEOUTS = {"/health": 5.0, "/model": 30.0, "/verify": 120.0, "/prefill": 900.0}
_RELEASE_TIMEOUT = 2.0
_SILENCE = 10.0  # seconds until a silent stream counts as lost; the verifier sends a comment every 3 s
_ATTEMPTS = 7  # over a broken connection: about 6 s of outage are bridged
_FEW_ATTEMPTS, _BRIDGED = 4, 1.0  # and at most so many seconds, where `outages` waits afterwards
_OVERLOAD_PATIENCE = 60.0  # seconds of retrying with an overloaded verifier, after the pauses that it asks for
_FIRST_PAUSE = 0.1  # seconds, doubled with every attempt

T = TypeVar("T")
_compact = json.JSONEncoder(separators=(",", ":")).encode


class SessionToOpen(Protocol):
    """What a text tells the client of its session."""

    prompt_ids: list[int]
    session_id: str
    tokens: list[int]  # generated and committed

    def request(self) -> dict[str, Any]:
        """The fields of `/prefill` and `/generate` that name the session, its prompt and its committed tokens."""


class VerifierClient:
    """One connection to a verifier; used by one thread at a time.

    `outages` waits for a verifier that went away, before a request without a session is repeated; None: no waiting.
    `transport`, `connect`, `sleep` and `clock` are arguments so that tests need no network and no waiting.
    Raises BadKey for an API key that no HTTP header can carry. An empty key counts as none.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        outages: Outages | None = None,
        transport: Transport | None = None,
        connect: Callable[[str], Transport] = HttpTransport,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self.transport: Transport = transport or connect(url)
        self._sleep, self._clock, self._connect = sleep, clock, connect
        self._api_key, self._outages = api_key, outages
        self.round_trip_ms = 0.0  # of the smallest request, measured by the last `ping`
        self._reached = False  # whether a connection was ever made
        self._aborted = threading.Event()
        self._headers = {"Content-Type": "application/json"}
        if api_key:  # an environment variable may be set and empty
            if not (api_key.isascii() and api_key.isprintable()):
                raise BadKey(
                    "the API key holds a line break or a character that no HTTP header can carry: check how it is set"
                )
            self._headers["Authorization"] = f"Bearer {api_key}"

    def close(self) -> None:
        self.transport.close()

    def another(self) -> "VerifierClient":
        """A further connection to the same verifier."""
        other = VerifierClient(
            self.url, api_key=self._api_key, outages=self._outages, connect=self._connect, clock=self._clock
        )
        other._sleep = other._wait
        other._reached = True
        return other

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. From any thread."""
        self._aborted.set()
        self.transport.abort()

    def _wait(self, seconds: float) -> None:
        self._aborted.wait(seconds)

    def wait_until_ready(self, patience: float = 900.0, on_wait: Callable[[float | None], None] | None = None) -> None:
        """Return when the verifier has loaded its model.

        `on_wait` is called with the progress of loading, 0 to 1, or None where it is unknown. Raises DrafterError when
        loading fails or takes longer than `patience` seconds, and the verifier's refusal.
        """
        deadline = self._clock() + patience
        while True:
            reply = self._exchange("GET", "/health", None)
            if reply.status == 200:
                return
            status = reply.body.get("status") if isinstance(reply.body, dict) else None
            if status == "failed":
                raise DrafterError(f"the verifier at {self.url} could not load its model: {reply.body.get('reason')}")
            if status != "loading":
                raise self._refusal(reply)
            if "access" in reply.body:  # the client will be refused: say so now, not after minutes of loading
                raise self._refusal(self._exchange("GET", "/model", None))
            if self._clock() > deadline:
                raise DrafterError(f"the verifier at {self.url} is still loading its model after {patience:.0f} s")
            if on_wait is not None:
                on_wait(self.fields("/health", reply.body).share_if_any("progress"))
            self._sleep(0.25)

    def health(self, target: ModelInfo | None = None) -> Health:
        """The verifier's health, asked once. A connection that fails counts as not ready.

        Raises an error for what waiting does not mend: a failed load, a refusal, and ModelChanged where the verifier
        serves something else than `target`.
        """
        try:
            reply = self.transport.exchange("GET", "/health", None, self._headers, _TIMEOUTS["/health"])
            if reply.status == 200 and target is not None:
                reply = self.transport.exchange("GET", "/model", None, self._headers, _TIMEOUTS["/model"])
                if reply.status == 200:
                    self._check_serves(target, ModelInfo.read(self.fields("/model", reply.body), None))
        except (ConnectionLost, VerifierUnreachable, VerifierTimeout, BadReply):
            return Health(False, "nothing answers")
        if reply.status == 200:
            return Health(True)
        body = reply.body if isinstance(reply.body, dict) else {}
        if body.get("status") == "failed":
            raise DrafterError(f"the verifier at {self.url} has failed: {body.get('reason')}")
        if body.get("status") == "loading":
            return Health(False, "loading its model", self.fields("/health", body).share_if_any("progress"))
        error = self._refusal(reply)
        if isinstance(error, ServerError):  # from a verifier that is shutting down, or from a proxy before it
            return Health(False, error.message)
        raise error

    def _check_serves(self, target: ModelInfo, found: ModelInfo) -> None:
        if (found.name, found.vocabulary) != (target.name, target.vocabulary):
            raise ModelChanged(
                f"the verifier at {self.url} serves {found.name} now, and the text was begun by {target.name}"
                f"{', with another vocabulary' if found.name == target.name else ''}: the rest would be another model's"
            )

    def model(self, below: int | None = None) -> ModelInfo:
        """What the verifier serves, with fingerprints of its vocabulary over the ids below `below` (None: over all)."""
        path = "/model" if below is None else f"/model?below={below}"
        body = self.call_through_outages("GET", path, None, "is it a verifier?")
        return ModelInfo.read(self.fields(path, body), below)

    def ping(self) -> None:
        """Measure `round_trip_ms`."""
        began = self._clock()
        self._exchange("GET", "/health", None)
        self.round_trip_ms = 1e3 * (self._clock() - began)

    def least_round_trip_ms(self, times: int) -> float:
        """The least of so many round trips: the link alone, as a busy machine only makes them longer."""
        found = []
        for _ in range(times):
            self.ping()
            found.append(self.round_trip_ms)
        self.round_trip_ms = min(found)
        return self.round_trip_ms

    def prefill(self, text: SessionToOpen, options: dict[str, Any]) -> PrefillResponse:
        """Open the session of a text, or continue it after the tokens that are known. Safe to repeat.

        The client makes the session id, so that a retry finds the session that the first attempt opened.
        """
        body = json.dumps(text.request() | options).encode()
        reply = self._answered("POST", "/prefill", body, text.session_id)  # not `call`: `resuming` waits
        return PrefillResponse.read(self.fields("/prefill", reply), text.session_id, text.prompt_ids, text.tokens)

    def verify(
        self, session_id: str, position: int, drafts: list[int], draft_probs: Sequence[Weights] | None = None
    ) -> VerifyResponse:
        """Have the draft tokens from `position` on judged. The position makes the request safe to repeat."""
        return self.begin_verify(session_id, position, drafts, draft_probs=draft_probs)()

    def begin_verify(
        self,
        session_id: str,
        position: int,
        drafts: list[int],
        next_in_ms: float | None = None,
        self_continue: bool | None = None,
        draft_probs: Sequence[Weights] | None = None,
    ) -> Callable[[], VerifyResponse]:
        """`verify` in two steps: sends the request; the returned function waits for the response, in any thread.

        No other request may come between the two. `next_in_ms`: milliseconds from the response to the next verify
        request. `self_continue`: whether the verifier may continue by itself from now on, in a session that was opened
        with it; None: as before. `draft_probs`: the distribution that each draft token was drawn from, for the strategy
        `probabilistic`.
        """
        body = b'{"position":%d,"draft_tokens":[%s]' % (position, ",".join(map(str, drafts)).encode())
        if draft_probs is not None:
            body += b',"draft_probs":%s' % _compact(draft_probs).encode()
        if next_in_ms is not None:
            body += b',"next_in_ms":%.1f' % next_in_ms
        if self_continue is not None:
            body += b',"self_continue":true' if self_continue else b',"self_continue":false'
        body += b"}"
        headers = self._headers_of(session_id)
        self.transport.begin("POST", "/verify", body, headers, _TIMEOUTS["/verify"])
        return lambda: self._response(self.call("POST", "/verify", body, session_id), len(drafts))

    def _response(self, reply: Any, drafts: int) -> VerifyResponse:
        return VerifyResponse.read(self.fields("/verify", reply), drafts)

    def stream(self, session_id: str, position: int) -> Iterator[StreamedTokens | StreamEnd]:
        """Committed tokens from `position` on as they come, without a gap, then the end. Raises BadReply."""
        path = f"/sessions/{session_id}/stream?from={position}"
        for name, data in self._events(path, None, self._headers_of(session_id)):
            event = self.fields(STREAM, data)
            if name == "end":
                yield StreamEnd.read(event, position)
            else:
                pushed = StreamedTokens.read(event, position)
                position += len(pushed.tokens)
                yield pushed

    def generate(self, text: SessionToOpen, options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """A text written by the server: events ("open", …), ("tokens", …) after the known tokens, ("end", summary)."""
        body = json.dumps({"stream": True} | text.request() | options).encode()
        return self._events("/generate", body, self._headers_of(text.session_id))

    def _events(self, path: str, body: bytes | None, headers: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, data in self.transport.stream(path, body, headers, _SILENCE):
            if name == "reply":
                raise self._refusal(data)
            if name == "error":
                raise from_body(500, data)
            yield name, data

    def release(self, session_id: str) -> None:
        """Delete a session. One that is gone already is no error.

        The timeout is short: a person who pressed Ctrl-C waits for it, and the session expires anyway.
        """
        with suppress(UnknownSession):
            self._answered("DELETE", f"/sessions/{session_id}", None)

    def fields(self, path: str, body: Any) -> Fields:
        """The body of the response from `path`, to be read by field. Raises BadReply where it is not an object."""
        return Fields(self.url + path, body)

    def call_through_outages(self, method: str, path: str, body: bytes | None, if_missing: str) -> Any:
        """`call`, for a request without a session: a verifier that goes away is waited for.

        Raises BadReply with the advice `if_missing` where the server has no such path.
        """
        try:
            if self._outages is None:
                return self.call(method, path, body)
            return self._outages.retry(lambda: self.call(method, path, body), self.health)
        except RequestError as error:
            if type(error) not in (RequestError, NotFound):
                raise
            name = path.partition("?")[0]
            raise BadReply(f"what answers at {self.url} has no {name} ({error}): {if_missing}") from None

    def call(self, method: str, path: str, body: bytes | None, session_id: str | None = None) -> Any:
        """The body of the response to a request that is safe to repeat. Raises the error that the verifier reports.

        With an overloaded verifier it retries for a minute, after the pauses that the verifier asks for.
        """
        deadline = self._clock() + _OVERLOAD_PATIENCE
        while True:
            try:
                return self._answered(method, path, body, session_id)
            except Overloaded as error:
                wait = error.details.get("retry_after")
                if wait is None or self._clock() + wait > deadline:
                    raise
                self._sleep(wait)

    def _answered(self, method: str, path: str, body: bytes | None, session_id: str | None = None) -> Any:
        """`call` without the retries for an overloaded verifier."""
        reply = self._exchange(method, path, body, session_id)
        if reply.status == 200:
            return reply.body
        raise self._refusal(reply)

    def _refusal(self, reply: Reply) -> SpecPairError | DrafterError:
        """The error that a response with another status than 200 reports."""
        error = from_body(reply.status, reply.body)
        if isinstance(error, Overloaded) and reply.retry_after is not None:
            error.details["retry_after"] = reply.retry_after
        if isinstance(error, Unauthorized):
            what = "does not take this key" if "Authorization" in self._headers else "wants its key"
            return BadKey(f"the verifier at {self.url} {what}: give it with --api-key, or DRAFTER_API_KEY")
        return error

    def _exchange(self, method: str, path: str, body: bytes | None, session_id: str | None = None) -> Reply:
        headers = self._headers if session_id is None else self._headers_of(session_id)
        timeout = _RELEASE_TIMEOUT if method == "DELETE" else _TIMEOUTS.get(path.partition("?")[0], 30.0)
        return self.persist(lambda: self.transport.exchange(method, path, body, headers, timeout))

    def _headers_of(self, session_id: str) -> dict[str, str]:
        return {**self._headers, "X-Session-Id": session_id}

    def persist(self, exchange: Callable[[], T]) -> T:
        """Run `exchange`, again while connections break: for about six seconds, or for one where `outages` waits then.

        `exchange` must be safe to repeat. Raises the last error. A verifier that was never reached is not retried.
        """
        pause, attempts, began = _FIRST_PAUSE, _ATTEMPTS if self._outages is None else _FEW_ATTEMPTS, self._clock()
        for attempt in range(attempts):
            if self._aborted.is_set():
                raise ConnectionLost(f"the exchange with {self.url} was aborted")
            try:
                result = exchange()
                self._reached = True
                return result
            except (ConnectionLost, VerifierUnreachable) as error:
                self._reached = self._reached or isinstance(error, ConnectionLost)
                too_long = self._outages is not None and self._clock() - began > _BRIDGED  # a silent link fails slowly
                if attempt + 1 == attempts or too_long or not self._reached:
                    raise
            self._sleep(pause)
            pause *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")
