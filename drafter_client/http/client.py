"""The verifier's REST interface as methods: typed requests, typed responses, typed errors.

A request that may be repeated is repeated by the rules in `retries`.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from httpx import BaseTransport, Response

from drafter_client.errors import BadKey, ConnectionLost, DrafterError, VerifierUnreachable
from drafter_client.http import retries
from drafter_client.http.addresses import Address
from drafter_client.http.connection import COMMENT, Headers, HttpConnection, Probe
from drafter_client.http.cookies import AFFINITY, SessionCookies
from drafter_client.http.health import IS_IT_ONE, Health, check_health, wait_until_ready
from drafter_client.http.outages import Outages
from drafter_client.http.responses import (
    STREAM,
    GenerateEvent,
    lacks,
    read,
    read_event,
    read_generated,
    read_model,
    read_prefill,
    read_verify,
)
from drafter_client.http.stop import Stop
from specpair.protocol.errors import (
    BadGateway,
    NotFound,
    RequestError,
    SpecPairError,
    Unauthorized,
    UnknownSession,
    from_body,
)
from specpair.protocol.messages import GenerateRequest, PrefillRequest, VerifyRequest, build
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.responses import PrefillResponse, StreamedTokens, StreamEnd, VerifyResponse
from specpair.protocol.service_responses import ModelInfo, SessionInfo
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy

# Seconds to wait for a response. A prefill may queue behind others and take long; a retry would only double the load.
_TIMEOUTS = {"/health": 5.0, "/model": 30.0, "/verify": 120.0, "/prefill": 900.0}
_RELEASE_TIMEOUT = 2.0  # seconds
_WITH_NEWS: Headers = [(b"Accept", b"text/event-stream")]  # a verifier that knows no such reply sends the usual one
_WHOLE = ""  # in place of an event's name: the reply is no stream
SILENCE = 10.0  # seconds until a silent stream counts as lost; the verifier sends a comment every 3 s

T = TypeVar("T")


class SessionToOpen(Protocol):
    """What the client needs of a text to open its session, or to continue it."""

    prompt_ids: list[int]
    session_id: str

    @property
    def tokens(self) -> list[int]:
        """Those generated and committed."""

    def request(self) -> dict[str, Any]:
        """The fields of `/prefill` and `/generate` that name the session, its prompt and its committed tokens."""


class Others(Protocol):
    """The verifiers between which clients move; see `several.verifiers.Verifiers`."""

    def moved(self, client: "VerifierClient", error: Exception) -> bool:
        """Move `client`, a request of which has failed with `error`, to another verifier; False: none is ready, or
        another one would be no remedy."""

    def look(self, client: "VerifierClient") -> Health:
        """Move `client` to a verifier that is ready, if any is: its own before others, unless it has failed."""

    def leave(self, client: "VerifierClient") -> bool:
        """Move `client` to another verifier if its own drains and another one is ready. Returns whether it has."""


class VerifierClient:
    """One connection to a verifier; used by one thread at a time.

    `outages` waits for a verifier that went away, before a request without a session is repeated; None: such a request
    is not repeated.
    `at`: the network address to take of those that the name in `url` has; empty: any.
    `others`: the other verifiers to which the client moves when its own is away; None: there are none.
    `transport`: sends the requests, and is closed by whoever made it; None: the client makes its own. `sleep` and
        `clock` (seconds) are arguments so that tests need no waiting.

    Raises BadUrl, and BadKey for an API key that no HTTP header can carry. An empty key counts as none.
    """

    def __init__(
        self,
        url: str,
        at: str = "",
        *,
        api_key: str | None = None,
        outages: Outages | None = None,
        others: "Others | None" = None,
        transport: BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = Address(url, at)
        self.connection = HttpConnection(url, transport, at=at)
        self.url = self.connection.url
        self.others = others
        self._sleep, self._clock, self._transport = sleep, clock, transport
        self._api_key, self._outages = api_key, outages
        self._reached = False  # whether a connection was ever made
        self._aborted = threading.Event()
        self._cookies = SessionCookies()
        self._news: Generator[tuple[str, bytes]] | None = None  # of a session that `prefill` opened, not read yet
        self._headers = [(b"Content-Type", b"application/json")]
        if api_key:  # an environment variable may be set and empty
            if not (api_key.isascii() and api_key.isprintable()):
                raise BadKey(
                    "the API key holds a line break or a character that no HTTP header can carry: check how it is set"
                )
            self._headers.append((b"Authorization", b"Bearer " + api_key.encode()))

    def close(self) -> None:
        if self._news is not None:
            self._news.close()
        self.connection.close()

    def another(self, address: Address | None = None, *, alone: bool = False) -> "VerifierClient":
        """Return a client with a connection of its own to the same verifier.

        `address`: of another verifier that is asked in its place.
        `alone`: whether it stays with its verifier, and does not wait for it.
        """
        other = VerifierClient(
            *(self.address if address is None else address),
            api_key=self._api_key,
            outages=None if alone else self._outages,
            others=None if alone else self.others,
            transport=self._transport,
            clock=self._clock,
        )
        other._sleep, other._cookies = other._aborted.wait, self._cookies
        other._reached = not alone
        return other

    def move_to(self, address: Address) -> None:
        """Have the verifier at `address` answer the next requests."""
        if address != self.address:
            self._connect_to(address)
            if self._aborted.is_set():
                self.connection.abort()

    def _connect_to(self, address: Address) -> None:
        self.connection.close()
        self.address = address
        self.connection = HttpConnection(address.url, self._transport, at=address.at)
        self.url = self.connection.url

    def moved_after(self, error: Exception) -> bool:
        """After a request has failed with `error`: whether the client has moved to another verifier that is ready."""
        return self.others is not None and self.others.moved(self, error)

    def look(self) -> Health:
        """The verifier's health; of several, that of the one that the client moves to, if any is ready."""
        return self.health() if self.others is None else self.others.look(self)

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. May be called from any thread."""
        self._aborted.set()
        self.connection.abort()

    @contextmanager
    def aborted_by(self, stop: Stop) -> Iterator[None]:
        """Within the block, setting `stop` itself calls `abort`. Behind the block, the client can be used again."""
        try:
            with stop.breaking(self.abort, above=False):
                yield
        finally:
            if self._aborted.is_set():
                self._aborted.clear()
                self._connect_to(self.address)

    def wait_until_ready(
        self, patience: float = retries.LOADING_PATIENCE, on_wait: Callable[[float | None], None] | None = None
    ) -> None:
        """Return when the verifier has loaded its model: see `health.wait_until_ready`."""
        wait_until_ready(self, patience, on_wait, self._sleep, self._clock)

    def health(self, *, started: bool = True) -> Health:
        """The verifier's health, asked once: see `health.check_health`."""
        return check_health(self, started=started)

    def model(self, below: int | None = None, session_id: str | None = None) -> ModelInfo:
        """Return what the verifier serves, with vocabulary fingerprints over the ids below `below` (None: over all).

        `session_id`: of a session whose verifier is meant, to which a router leads by it.
        """
        path = "/model" if below is None else f"/model?below={below}"
        body = self.call_through_outage("GET", path, None, IS_IT_ONE, session_id)
        return read_model(self.url + path, body, below)

    def ping(self) -> float:
        """Return the seconds that one request to `/health` takes. Raises an error unless the verifier answers that
        it is ready: a proxy before it may be nearer."""
        began = self._clock()
        response = self.exchange("GET", "/health")
        took = self._clock() - began
        if response.status_code != 200:
            raise self.refusal(response)
        return took

    def least_round_trip(self, pings: int) -> float:
        """Measure `pings` round trips and return the shortest. It is nearest to the link's own, since a busy machine
        only makes round trips longer."""
        return min(self.ping() for _ in range(pings))

    def prefill(
        self,
        text: SessionToOpen,
        options: dict[str, Any],
        on_read: Callable[[PromptProgress], None] = lambda _: None,
        listener: "VerifierClient | None" = None,
    ) -> PrefillResponse:
        """Open the session of a text, or continue it after the tokens that are known. Safe to repeat.

        The client makes the session id, so that a retry finds the session that the first attempt opened.
        `options`: other fields of the request.
        `on_read`: called now and then while that takes long.
        `listener`: whose `stream` will be asked for the session's news. Those come behind the reply, so the listener
            gets this connection in exchange for its own; it has to ask for them if the verifier cannot send them so.
        """
        body = build(PrefillRequest, text.request() | options).body()
        path = f"/sessions/{text.session_id}"

        def told(content: bytes) -> None:
            session = read(self.url + path, SessionInfo, content)
            on_read(PromptProgress(session.prompt_read, session.prompt_len))

        with self.connection.probing(Probe(path, self._headers_of(text.session_id), told)):
            if listener is None:
                content = self._answered("POST", "/prefill", body, text.session_id)  # not `call`: `resuming` waits
            else:
                content = self.retry_broken_connection(lambda: self._opened(body, text.session_id, listener))
        return read_prefill(self.url + "/prefill", content, text.prompt_ids, text.tokens)

    def _opened(self, body: bytes, session_id: str, listener: "VerifierClient") -> bytes:
        """The reply to `/prefill`. Hands the session's news over to `listener` if they follow."""
        events = self._events("/prefill", body, session_id, _WITH_NEWS, _TIMEOUTS["/prefill"])
        name, content = next(events, (COMMENT, b""))
        if name == COMMENT:
            raise ConnectionLost(f"the reply of {self.url} to /prefill broke off")
        if name == _WHOLE:
            events.close()
            return content
        listener._news = events
        self.connection, listener.connection = listener.connection, self.connection
        if self._aborted.is_set():
            self.connection.abort()
        return content

    def verify(self, session_id: str, draft: Draft, policy: RejectionPolicy = UNSAID) -> VerifyResponse:
        """Have a draft judged. Its position makes the request safe to repeat.

        `policy`: what the verifier does after a rejection; it self-continues only in a session that was opened for it.
        """
        content = self.call("POST", "/verify", VerifyRequest.of(draft, policy).body(), session_id)
        return read_verify(self.url + "/verify", content, draft.position, len(draft))

    def stream(self, session_id: str, position: int) -> Iterator[StreamedTokens | StreamEnd]:
        """Yield the committed tokens from `position` on as they come, without a gap, then the end of the text. Raises
        BadReply."""
        path = f"/sessions/{session_id}/stream?from={position}"
        behind_prefill, self._news = self._news, None
        for name, data in behind_prefill or self._events(path, None, session_id):
            if name == COMMENT:
                continue
            event = read_event(self.url + STREAM, name, data, position)
            if isinstance(event, StreamedTokens):
                position += len(event.tokens)
            yield event

    def generate(self, text: SessionToOpen, options: dict[str, Any]) -> Iterator[GenerateEvent | PromptProgress]:
        """Have the verifier generate a text; yield its events: the session, then the new tokens of each pass, then the
        summary; while a long prompt is read, how much of it is.

        `options`: the other fields of the request.
        """
        body = build(GenerateRequest, {"stream": True} | text.request() | options).body()
        for name, data in self._events("/generate", body, text.session_id):
            if name != COMMENT:
                yield read_generated(self.url + "/generate", name, data)
            elif (progress := PromptProgress.from_comment(data)) is not None:
                yield progress

    def _events(
        self, path: str, body: bytes | None, session_id: str, more: Headers | None = None, patience: float | None = None
    ) -> Generator[tuple[str, bytes]]:
        """Yield the names and the data of the reply's events; of a reply in JSON, `_WHOLE` and its body.

        `more`: further headers.
        `patience`: as for `HttpConnection.respond`.
        """
        method, headers = "GET" if body is None else "POST", [*self._headers_of(session_id), *(more or [])]
        # Not `self.connection` from here on: `prefill` hands it over.
        connection, silence = self.connection, ConnectionLost
        with connection.respond(method, path, body, headers, SILENCE, silence, patience) as response:
            self._cookies.keep(self.url, session_id, response.headers.get_list("Set-Cookie"))
            if response.status_code != 200:
                response.read()
                raise self.refusal(response)
            if response.headers.get("Content-Type", "").startswith("application/json"):
                yield _WHOLE, response.read()
                return
            for name, data in connection.events(response):
                if name == "error":
                    error = from_body(500, data)
                    # A router says that the connection behind it broke, as this one would have.
                    raise ConnectionLost(str(error)) if isinstance(error, BadGateway) else error
                yield name, data

    def release(self, session_id: str) -> None:
        """Delete a session; it is no error if the session is gone already.

        The timeout is short: a person who pressed Ctrl-C waits for it, and the session expires anyway.
        """
        with suppress(UnknownSession):
            self._answered("DELETE", f"/sessions/{session_id}", None, session_id)
        self._cookies.forget(self.url, session_id)

    def call_through_outage(
        self, method: str, path: str, body: bytes | None, if_missing: str, session_id: str | None = None
    ) -> bytes:
        """Do as `call` for a request that needs no session, and wait for a verifier that went away.

        Raises BadReply with the advice `if_missing` if the server has no such path.
        """

        def anywhere() -> bytes:
            while True:
                try:
                    return self.call(method, path, body, session_id)
                except Exception as error:
                    if not self.moved_after(error):
                        raise

        try:
            if self._outages is None:
                return self.call(method, path, body, session_id)
            return self._outages.retry_through_outage(anywhere, self.look)
        except RequestError as error:
            if type(error) not in (RequestError, NotFound):
                raise
            raise lacks(self.url, path, error, if_missing) from None

    def call(self, method: str, path: str, body: bytes | None, session_id: str | None = None) -> bytes:
        """Return the body of the response to a request, which is repeated while connections break or the verifier is
        overloaded, so it must be safe to repeat. Raises the error that the verifier reports."""
        return retries.repeat(
            lambda: self._answered(method, path, body, session_id), retries.after_overload, self._sleep, self._clock
        )

    def _answered(self, method: str, path: str, body: bytes | None, session_id: str | None = None) -> bytes:
        """Do as `call`, without the retries for an overloaded verifier."""
        response = self.exchange(method, path, body, session_id)
        if response.status_code == 200:
            return response.content
        raise self.refusal(response)

    def refusal(self, response: Response) -> SpecPairError | DrafterError:
        """Return the error that a response with another status than 200 reports."""
        if response.status_code == 407:
            return VerifierUnreachable(
                f"the proxy on the way to {self.url} asks for a user and a password: http://user:password@proxy:port"
            )
        error = from_body(response.status_code, response.content)
        wait = response.headers.get("Retry-After", "")
        if isinstance(error, retries.REFUSED_FOR_NOW) and wait.isdecimal():
            error.details.setdefault("retry_after", float(wait))  # the body may be more exact
        if isinstance(error, Unauthorized):
            what = "does not take this key" if self._api_key else "wants its key"
            return BadKey(
                f"the verifier at {self.url} {what}: give it with --api-key, or DRAFTER_API_KEY (in Python: api_key)"
            )
        return error

    def exchange(self, method: str, path: str, body: bytes | None = None, session_id: str | None = None) -> Response:
        """Return the response to a request, which is repeated while connections break, so it must be safe to repeat."""
        return self.retry_broken_connection(lambda: self.exchange_once(method, path, body, session_id))

    def exchange_once(
        self, method: str, path: str, body: bytes | None = None, session_id: str | None = None
    ) -> Response:
        """Return the response to a request that is not repeated."""
        headers = self._headers if session_id is None else self._headers_of(session_id)
        timeout = _RELEASE_TIMEOUT if method == "DELETE" else _TIMEOUTS.get(path.partition("?")[0], 30.0)
        response = self.connection.exchange(method, path, body, headers, timeout)
        if session_id is not None:
            self._cookies.keep(self.url, session_id, response.headers.get_list("Set-Cookie"))
        return response

    def _headers_of(self, session_id: str) -> Headers:
        named = (b"X-Session-Id", session_id.encode())
        return [*self._headers, named, AFFINITY, *self._cookies.header(self.url, session_id)]

    def retry_broken_connection(self, exchange: Callable[[], T]) -> T:
        """Return the result of `exchange`, which is repeated while connections break, so it must be safe to repeat.

        Raises the last error.
        """

        def pause_after(error: Exception, attempts: int, seconds: float) -> retries.Pause:
            self._reached = self._reached or isinstance(error, ConnectionLost)
            return retries.after_broken_connection(
                error,
                attempts,
                seconds,
                reached=self._reached,
                outage_follows=self._outages is not None,
                others=self.others is not None,
            )

        def pause(seconds: float) -> None:
            self._sleep(seconds)
            self._raise_if_aborted()

        self._raise_if_aborted()
        result = retries.repeat(exchange, pause_after, pause, self._clock)
        self._reached = True
        return result

    def _raise_if_aborted(self) -> None:
        if self._aborted.is_set():
            raise ConnectionLost(f"the exchange with {self.url} was aborted")
