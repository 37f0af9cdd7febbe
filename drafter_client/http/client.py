"""The verifier's REST interface as methods: typed requests, typed responses, typed errors."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Protocol

from httpx import BaseTransport

from drafter_client.errors import ConnectionLost
from drafter_client.http import responses, retries
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.connection import COMMENT, Headers, ResponseProbe
from drafter_client.http.health import IS_IT_ONE, check_health, wait_until_ready
from drafter_client.http.outages import Health, Outages
from drafter_client.http.requests import TIMEOUTS, WHOLE, Requests
from drafter_client.http.sent_texts import SentTexts
from drafter_client.http.text_session import TextSession
from drafter_client.http.trust import SYSTEM, Trust
from specpair.protocol.errors import NotFound, RequestError, UnknownSession
from specpair.protocol.messages import GenerateRequest, PrefillRequest, VerifyRequest, build
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.responses import PrefillResponse, StreamedTokens, StreamEnd, VerifyResponse
from specpair.protocol.service_responses import ModelInfo, SessionInfo
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import UNSAID, RejectionPolicy

_WITH_NEWS: Headers = [(b"Accept", b"text/event-stream")]  # a verifier that knows no such reply sends the usual one


class VerifierFailover(Protocol):
    """Moves clients between verifiers; see `verifiers.Verifiers`."""

    def moved(self, client: "VerifierClient", error: Exception) -> bool:
        """Move `client` to another verifier after its request failed with `error`; False: none is ready, or moving
        is no remedy."""

    def look(self, client: "VerifierClient") -> Health:
        """Move `client` to a ready verifier, if there is any. Its own comes first, unless it failed."""

    def leave(self, client: "VerifierClient") -> bool:
        """Move `client` to another verifier if its own drains and another one is ready. Returns whether it has."""

    def served(self, address: VerifierAddress) -> None:
        """Note that the verifier at `address` answers a text."""

    def serves(self, address: VerifierAddress, info: ModelInfo) -> bool:
        """Note what the verifier at `address` says that it serves. Returns whether others may go on with its texts."""


class VerifierClient(Requests):
    """One connection to a verifier; used by one thread at a time.

    `at`: the network address to take of those that the name in `url` has; empty: any.
    `outages` waits for a verifier that went away, before a request without a session is repeated; None: such a request
    is not repeated.
    `others`: the other verifiers to which the client moves when its own is away; None: there are none.
    `trust`: whose certificates its own connections take.
    `transport`: sends the requests, and is closed by whoever made it; None: the client makes its own.
    The errors: as of `Requests`.
    """

    others: "VerifierFailover | None"

    def __init__(
        self,
        url: str,
        at: str = "",
        *,
        api_key: str | None = None,
        outages: Outages | None = None,
        others: "VerifierFailover | None" = None,
        trust: Trust = SYSTEM,
        transport: BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            VerifierAddress(url, at),
            api_key=api_key,
            outage_follows=outages is not None,
            trust=trust,
            transport=transport,
            sleep=sleep,
            clock=clock,
        )
        self.others, self._outages = others, outages
        self._sent = SentTexts()
        self._news: Generator[tuple[str, bytes]] | None = None  # of a session that `prefill` opened, not read yet

    def close(self) -> None:
        if self._news is not None:
            self._news.close()
        self.connection.close()

    def another(self, address: VerifierAddress | None = None, *, alone: bool = False) -> "VerifierClient":
        """Return a client with a connection of its own to the same verifier.

        `address`: of another verifier that is asked in its place.
        `alone`: whether it stays with its verifier, and does not wait for it.
        """
        other = VerifierClient(
            *(self.address if address is None else address),
            api_key=self._api_key,
            outages=None if alone else self._outages,
            others=None if alone else self.others,
            trust=self._trust,
            transport=self._transport,
            clock=self._clock,
        )
        other._sleep, other._cookies = other._aborted.wait, self._cookies
        other._sent = self._sent
        other._reached = not alone
        return other

    def move_to(self, address: VerifierAddress) -> None:
        if address != self.address:
            self._connect_to(address)
            if self._aborted.is_set():
                self.connection.abort()

    def moved_after(self, error: Exception) -> bool:
        """After a request has failed with `error`: whether the client has moved to another verifier that is ready."""
        return self.others is not None and self.others.moved(self, error)

    def look(self) -> Health:
        """The verifier's health. With several verifiers, first move to a ready one, if there is any."""
        return self.health() if self.others is None else self.others.look(self)

    def wait_until_ready(
        self, patience: float = retries.LOADING_PATIENCE, on_wait: Callable[[float | None], None] | None = None
    ) -> None:
        wait_until_ready(self, patience, on_wait, self._sleep, self._clock)

    def health(self, *, started: bool = True) -> Health:
        return check_health(self, started=started)

    def model(self, below: int | None = None, session_id: str | None = None) -> ModelInfo:
        """Return what the verifier serves, with vocabulary fingerprints over the ids below `below` (None: over all).

        `session_id`: of a session whose verifier is meant, to which a router leads by it.
        """
        path = "/model" if below is None else f"/model?below={below}"
        body = self.call_through_outage("GET", path, None, IS_IT_ONE, session_id)
        info = responses.read_model(self.url + path, body, below)
        self._sent.serves(self.address, prefixes=info.prefixes)
        return info

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
        text: TextSession,
        options: dict[str, Any],
        on_read: Callable[[PromptProgress], None] = lambda _: None,
        listener: "VerifierClient | None" = None,
    ) -> PrefillResponse:
        """Open the session of a text, or continue it after the tokens that are known. Safe to repeat.

        A prompt that begins like an earlier text is sent without the ids that both share, if the verifier holds them.
        The client makes the session id, so that a retry finds the session that the first attempt opened.
        `options`: other fields of the request.
        `on_read`: called now and then while that takes long.
        `listener`: the client whose `stream` reads the session's events. They follow the reply, so the listener gets
            this connection in exchange for its own; it requests them if the verifier cannot send them so.
        """
        path, salt = f"/sessions/{text.session_id}", options.get("cache_salt", "")
        prefix = self._sent.prefix(self.address, text.prompt_ids, salt)

        def on_reply(content: bytes) -> None:
            session = responses.read(self.url + path, SessionInfo, content)
            on_read(PromptProgress(session.prompt_read, session.prompt_len))

        def opened() -> bytes:
            body = build(PrefillRequest, text.request(prefix) | options).body()
            with self.connection.probing(ResponseProbe(path, self._headers_of(text.session_id), on_reply)):
                if listener is None:
                    return self._answered("POST", "/prefill", body, text.session_id)  # not `call`: `resuming` waits
                return self.retry_broken_connection(lambda: self._opened(body, text.session_id, listener))

        try:
            content = opened()
        except RequestError as error:
            if not self._sent.refused(self.address, prefix, error):
                raise
            prefix = None
            content = opened()
        sent = prefix.length if prefix else 0
        response = responses.read_prefill(self.url + "/prefill", content, text.prompt_ids, text.tokens, sent)
        self._sent.note(self.address, text, salt)
        return response

    def _opened(self, body: bytes, session_id: str, listener: "VerifierClient") -> bytes:
        """The reply to `/prefill`. `listener` takes over the session's events if they follow."""
        events = self._events("/prefill", body, session_id, _WITH_NEWS, TIMEOUTS["/prefill"])
        name, content = next(events, (COMMENT, b""))
        if name == COMMENT:
            raise ConnectionLost(f"the reply of {self.url} to /prefill broke off")
        if name == WHOLE:
            events.close()
            return content
        listener._news = events
        self.connection, listener.connection = listener.connection, self.connection
        if self._aborted.is_set():
            self.connection.abort()
        return content

    def verify(self, session_id: str, draft: Draft, policy: RejectionPolicy = UNSAID) -> VerifyResponse:
        """Verify a draft. Its position makes the request safe to repeat.

        `policy`: what the verifier does after a rejection; it self-continues only in a session that was opened for it.
        """
        content = self.call("POST", "/verify", VerifyRequest.of(draft, policy).body(), session_id)
        return responses.read_verify(self.url + "/verify", content, draft.position, len(draft))

    def stream(self, session_id: str, position: int) -> Iterator[StreamedTokens | StreamEnd]:
        """Yield the committed tokens from `position` on as they come, without a gap, then the end of the text. Raises
        BadReply."""
        path = f"/sessions/{session_id}/stream?from={position}"
        behind_prefill, self._news = self._news, None
        for name, data in behind_prefill or self._events(path, None, session_id):
            if name == COMMENT:
                continue
            event = responses.read_event(self.url + responses.STREAM, name, data, position)
            if isinstance(event, StreamedTokens):
                position += len(event.tokens)
            yield event

    def generate(
        self, text: TextSession, options: dict[str, Any]
    ) -> Iterator[responses.GenerateEvent | PromptProgress]:
        """Have the verifier generate a text; yield its events: the session, then the new tokens of each pass, then the
        summary; while a long prompt is read, how much of it is.

        `options`: the other fields of the request.
        """
        salt = options.get("cache_salt", "")
        prefix = self._sent.prefix(self.address, text.prompt_ids, salt)

        def events() -> Iterator[responses.GenerateEvent | PromptProgress]:
            body = build(GenerateRequest, {"stream": True} | text.request(prefix) | options).body()
            for name, data in self._events("/generate", body, text.session_id):
                if name == "open":
                    self._sent.note(self.address, text, salt)
                if name != COMMENT:
                    yield responses.read_generated(self.url + "/generate", name, data)
                elif (progress := PromptProgress.from_comment(data)) is not None:
                    yield progress

        try:
            yield from events()
        except RequestError as error:
            if not self._sent.refused(self.address, prefix, error):
                raise
            prefix = None
            yield from events()

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
            raise responses.lacks(self.url, path, error, if_missing) from None
