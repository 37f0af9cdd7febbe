"""Requests to a verifier: repeated by the rules in `retries`, with the key and the cookies of their session."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from httpx import BaseTransport, Response

from drafter_client.errors import BadKey, ConnectionLost, DrafterError, VerifierUnreachable
from drafter_client.http import retries
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.connection import Headers, HttpConnection
from drafter_client.http.outages import Stop
from drafter_client.http.trust import Trust
from specpair.protocol.errors import BadGateway, SpecPairError, Unauthorized, from_body

# Seconds to wait for a response. A prefill may queue behind others and take long; a retry would only double the load.
TIMEOUTS = {"/health": 5.0, "/model": 30.0, "/verify": 120.0, "/prefill": 900.0}
_RELEASE_TIMEOUT = 2.0  # seconds
WHOLE = ""  # in place of an event's name: the reply is no stream
SILENCE = 10.0  # seconds until a silent stream counts as lost; the verifier sends a comment every 3 s

MOST_SESSIONS = 4096
_MOST_COOKIES, _LONGEST = 8, 4096  # of a session; bytes of one: what exceeds them is no cookie of a load balancer
AFFINITY = (b"X-Session-Affinity", b"cookie")  # says that this client keeps cookies, to a balancer that asks
Cookies = dict[bytes, bytes]  # values by name


T = TypeVar("T")


class SessionCookies:
    """The cookies of the latest sessions. May be used from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Cookies] = OrderedDict()
        self._changing = threading.Lock()

    def header(self, url: str, session_id: str) -> list[tuple[bytes, bytes]]:
        """The header with a session's cookies for the service at `url`; none if it has none."""
        kept = self._kept.get((url, session_id))
        return [(b"Cookie", b"; ".join(b"%s=%s" % each for each in kept.items()))] if kept else []

    def keep(self, url: str, session_id: str, set_cookies: Iterable[str]) -> None:
        for each in set_cookies:
            with self._changing:
                known = self._kept.get((url, session_id), {})
                self._kept[url, session_id] = _changed(known, each)  # a new one: another thread may read the old one
                self._kept.move_to_end((url, session_id))
                if len(self._kept) > MOST_SESSIONS:
                    self._kept.popitem(last=False)

    def forget(self, url: str, session_id: str) -> None:
        with self._changing:
            self._kept.pop((url, session_id), None)


def _changed(cookies: Cookies, header: str) -> Cookies:
    """`cookies` after a header Set-Cookie. Attributes are passed over, but for an end: a session has one path."""
    pair, *attributes = header.encode("latin-1", "replace").split(b";")
    name, equals, value = (part.strip() for part in pair.partition(b"="))
    if not (name and equals) or len(pair) > _LONGEST:
        return cookies
    kept = {known: each for known, each in cookies.items() if known != name}
    ended = any(each.strip().lower() in (b"max-age=0", b"max-age=-1") for each in attributes)
    return kept if ended or len(kept) >= _MOST_COOKIES else {**kept, name: value}


class Requests:
    """Requests over one connection to a verifier; used by one thread at a time. `outage_follows`: whether an outage is
    waited for after a request that fails.

    Raises BadUrl, and BadKey for an API key that no HTTP header can carry. An empty key counts as none.
    """

    others: object | None = None  # the other verifiers that may go on, if there are several

    def __init__(
        self,
        address: VerifierAddress,
        *,
        api_key: str | None,
        outage_follows: bool,
        trust: Trust,
        transport: BaseTransport | None,
        sleep: Callable[[float], object],
        clock: Callable[[], float],
    ) -> None:
        self._sleep, self._clock, self._trust, self._transport = sleep, clock, trust, transport
        self._open(address)
        self._api_key, self._outage_follows = api_key, outage_follows
        self._reached = False  # whether a connection was ever made
        self._aborted = threading.Event()
        self._cookies = SessionCookies()
        self._headers = [(b"Content-Type", b"application/json")]
        if api_key:  # an environment variable may be set and empty
            if not (api_key.isascii() and api_key.isprintable()):
                wrong = "a line break or a character that no HTTP header can carry"
                raise BadKey(f"the API key holds {wrong}: check how it is set")
            self._headers.append((b"Authorization", b"Bearer " + api_key.encode()))

    def _connect_to(self, address: VerifierAddress) -> None:
        self.connection.close()
        self._open(address)

    def _open(self, address: VerifierAddress) -> None:
        self.address = address
        self.connection = HttpConnection(address.url, self._transport, at=address.at, trust=self._trust)
        self.url = self.connection.url

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
            cure = "give it as api_key="
            if self._api_key and self._trust.pin:
                cure = "it was revoked there, so join again with a new link (drafter join LINK)"
            return BadKey(f"the verifier at {self.url} {what}: {cure}")
        return error

    def exchange(self, method: str, path: str, body: bytes | None = None, session_id: str | None = None) -> Response:
        """Return the response to a request, which is repeated while connections break, so it must be safe to repeat."""
        return self.retry_broken_connection(lambda: self.exchange_once(method, path, body, session_id))

    def exchange_once(
        self, method: str, path: str, body: bytes | None = None, session_id: str | None = None
    ) -> Response:
        """Return the response to a request that is not repeated."""
        headers = self._headers if session_id is None else self._headers_of(session_id)
        timeout = _RELEASE_TIMEOUT if method == "DELETE" else TIMEOUTS.get(path.partition("?")[0], 30.0)
        response = self.connection.exchange(method, path, body, headers, timeout)
        if session_id is not None:
            self._cookies.keep(self.url, session_id, response.headers.get_list("Set-Cookie"))
        return response

    def _headers_of(self, session_id: str) -> Headers:
        named = (b"X-Session-Id", session_id.encode())
        return [*self._headers, named, AFFINITY, *self._cookies.header(self.url, session_id)]

    def _events(
        self, path: str, body: bytes | None, session_id: str, more: Headers | None = None, patience: float | None = None
    ) -> Generator[tuple[str, bytes]]:
        """Yield the names and the data of the reply's events; of a reply in JSON, `WHOLE` and its body.

        `more`: further headers.
        `patience`: as for `HttpConnection.respond`.
        """
        method, headers = "GET" if body is None else "POST", [*self._headers_of(session_id), *(more or [])]
        connection = self.connection  # which `prefill` hands over meanwhile
        asked = method, path, body, headers, SILENCE
        with connection.respond(*asked, silence=ConnectionLost, patience=patience) as response:
            self._cookies.keep(self.url, session_id, response.headers.get_list("Set-Cookie"))
            if response.status_code != 200:
                response.read()
                raise self.refusal(response)
            if response.headers.get("Content-Type", "").startswith("application/json"):
                yield WHOLE, response.read()
                return
            for name, data in connection.events(response):
                if name == "error":
                    error = from_body(500, data)
                    # A router says that the connection behind it broke, as this one would have.
                    raise ConnectionLost(str(error)) if isinstance(error, BadGateway) else error
                yield name, data

    def retry_broken_connection(self, exchange: Callable[[], T]) -> T:
        """Return the result of `exchange`, which is repeated while connections break, so it must be safe to repeat.

        Raises the last error.
        """

        def pause_after(error: Exception, attempts: int, seconds: float) -> retries.Pause:
            self._reached = self._reached or isinstance(error, ConnectionLost)
            if not self._reached:
                return None
            others, follows = self.others is not None, self._outage_follows
            return retries.after_broken_connection(error, attempts, seconds, outage_follows=follows, others=others)

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
