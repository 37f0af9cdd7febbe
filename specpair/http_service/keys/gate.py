"""The gate for every request: admits callers, enforces the limits of keys, and refuses foreign web pages.

Each key has an account: what it has used, and what its limits leave. A key spends the tokens that the target's work on
texts is made of: those that were generated, and the draft tokens that were rejected. (An accepted draft token is a
generated one.) So a second of the model costs about the same by every way: `/verify` with drafts from far away,
`/generate`, or OpenAI's endpoints.
"""

import asyncio
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import SecretStr
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from specpair.command_line.setting_values import SettingsError
from specpair.fairness import ReleaseRate
from specpair.http_service.connection import Connection, connection_of
from specpair.http_service.keys.access import LOOK_EVERY, Access, Caller, KeyStore, ServiceNames
from specpair.http_service.keys.key_file import KeyFileError, KeyLimits
from specpair.http_service.observability.logs import note_key
from specpair.http_service.replies.json_replies import error_reply
from specpair.http_service.sharing.joining import Guests
from specpair.http_service.web_pages import Origins
from specpair.protocol.errors import ForeignOrigin, RateLimited, SpecPairError
from specpair.protocol.service_responses import KeyUsage, UsageResponse

_LEAST_WAIT = 0.05  # seconds after which a refused client may ask again
_RAISED = "try again later, or have the limit of your key raised"
BURST = 1.0  # seconds for which the full bucket gives tokens at its rate
_NOTHING = 1e-6  # tokens; less is a rounding error
_FORWARDED = (b"x-forwarded-for", b"forwarded")
_log = logging.getLogger("specpair.service")
_ADMITTED = "specpair.admitted"  # key of the scope: what the request counts for
CALLER = "specpair.caller"  # key of the scope: the caller that another process has identified, or the error


@dataclass(slots=True)
class UsageCounts:
    """The usage of a key since the start."""

    requests: int = 0  # those that may begin or continue a text
    prompt_tokens: int = 0  # of texts that have begun
    generated_tokens: int = 0
    draft_tokens: int = 0  # that the target judged
    accepted_tokens: int = 0  # draft tokens


class Account:
    """The account of one key; the callers without a key share one. Used in the event loop. Times are in seconds."""

    def __init__(self) -> None:
        self.usage = UsageCounts()
        self._requests, self._texts = ReleaseRate(), ReleaseRate()
        self._bucket: TokenBucket | None = None

    def begin_request(self, limits: KeyLimits, now: float) -> None:
        """Count a request as in flight until `end_request`. Raises RateLimited."""
        wait = self._wait_for_tokens(limits.tokens_per_second, now)
        if wait > 0.0:
            raise _limited(f"your key may spend {limits.tokens_per_second:g} tokens a second", wait, type="tokens")
        _check(self._requests, limits.requests, "requests of yours are in flight", now)
        self._requests.taken(now)
        self.usage.requests += 1

    def end_request(self, now: float) -> None:
        self._requests.freed(now)

    def begin_text(self, limits: KeyLimits, now: float) -> None:
        """Count a text, which begins or waits, until `end_text`, in a service without sessions. Raises RateLimited."""
        _check(self._texts, limits.sessions, "texts of yours wait or are being generated", now)
        self._texts.taken(now)

    def end_text(self, now: float) -> None:
        self._texts.freed(now)

    def count(self, now: float, *, prompt: int = 0, generated: int = 0, drafted: int = 0, accepted: int = 0) -> None:
        """Count tokens, and spend them. `drafted`: draft tokens that the target judged, and `accepted` of them."""
        usage = self.usage
        usage.prompt_tokens += prompt
        usage.generated_tokens += generated
        usage.draft_tokens += drafted
        usage.accepted_tokens += accepted
        if self._bucket is not None:
            self._bucket.spend(generated + drafted - accepted, now)

    def _wait_for_tokens(self, rate: float | None, now: float) -> float:
        if rate is None:
            self._bucket = None
            return 0.0
        if self._bucket is None:
            self._bucket = TokenBucket(rate, now)
        self._bucket.change(rate, now)
        return self._bucket.wait(now)


class Accounts:
    """The accounts of one service, by the names of the keys; "" for the callers without a key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self.clock = clock
        self._accounts = defaultdict[str, Account](Account)

    def of(self, name: str) -> Account:
        return self._accounts[name]

    @property
    def generated_tokens(self) -> int:
        """Tokens that were generated since the start, for all keys."""
        return sum(account.usage.generated_tokens for account in self._accounts.values())

    def usage(self) -> dict[str, UsageCounts]:
        return {name: account.usage for name, account in sorted(self._accounts.items())}


def _check(places: ReleaseRate, limit: int | None, what: str, now: float) -> None:
    if limit is not None and places.busy >= limit:
        wait = max(_LEAST_WAIT, places.expected(now))
        raise _limited(f"{places.busy} {what}, and your key may have {limit} at once", wait)


def _limited(why: str, wait: float, **details: str) -> RateLimited:
    """The error, with the wait rounded up to milliseconds."""
    return RateLimited(f"{why}: {_RAISED}", retry_after=math.ceil(1e3 * wait) / 1e3, **details)


class TokenBucket:
    """Tokens that may be spent. Times are in seconds.

    What a request costs is known at its end. So a request may begin while nothing is owed, and is charged afterwards,
    perhaps more than the bucket holds. The next request waits until that is paid back, so on average no more than the
    rate is spent.
    """

    def __init__(self, rate: float, now: float) -> None:
        """`rate`: tokens a second."""
        self.rate = rate
        self._level = rate * BURST
        self._at = now

    def change(self, rate: float, now: float) -> None:
        self._fill(now)
        self.rate = rate

    def spend(self, tokens: float, now: float) -> None:
        self._fill(now)
        self._level -= tokens

    def wait(self, now: float) -> float:
        """Seconds until a request may begin; 0: one may begin now."""
        self._fill(now)
        return 0.0 if self._level > -_NOTHING else -self._level / self.rate

    def _fill(self, now: float) -> None:
        self._level = min(self.rate * BURST, self._level + self.rate * max(0.0, now - self._at))
        self._at = max(now, self._at)


@dataclass(slots=True)
class _Admitted:
    """What a request counts for until its reply is sent."""

    account: Account | None = None  # that counts it as in flight
    owner: str = ""  # of the key that it came with


class Gate:
    """The gate of one service. Used in the event loop."""

    def __init__(self, access: Access, accounts: Accounts) -> None:
        self.access, self.accounts = access, accounts
        self.guests: Guests | None = None  # of a service while it is shared
        self.on_unshared: Callable[[], object] = lambda: None  # shuts out other machines
        self._connections = defaultdict[str, Counter[Connection]](Counter)  # with requests in flight, by owner
        access.keys.on_removed = self._end

    @classmethod
    def of(
        cls, key: SecretStr | None, file: Path | None, insecure: bool, names: ServiceNames, setting: str = "keys_file"
    ) -> "Gate":
        """The gate of a service with these settings.

        `setting`: the name of the setting `file`, for errors.

        Raises SettingsError for a file of keys that cannot be read.
        """
        try:
            keys = KeyStore(None if key is None else key.get_secret_value(), file)
        except KeyFileError as error:
            raise SettingsError(f"{setting}: {error}") from None
        return cls(Access(keys, insecure, names), Accounts())

    def identify(self, scope: Scope) -> Caller:
        """The caller of a request. Raises Unauthorized and Forbidden."""
        authorization, api_key, forwarded = b"", b"", []
        for name, value in scope["headers"]:  # one pass costs less than a look-up for each name
            if name == b"authorization":
                authorization = value
            elif name == b"x-api-key":  # as Anthropic's clients send it
                api_key = value
            elif name in _FORWARDED:
                forwarded.append(value.decode("latin-1"))
        address = (scope.get("client") or (None,))[0]
        server = (scope.get("server") or (None,))[0]
        if api_key and not authorization:
            authorization = b"Bearer " + api_key
        caller = self.access.identify(address, authorization.decode("latin-1"), forwarded, server)
        note_key(caller.key_name)
        admitted: _Admitted | None = scope.get(_ADMITTED)
        if admitted is not None and caller.owner and not admitted.owner:
            admitted.owner = caller.owner
            if (connection := connection_of(scope)) is not None:
                self._connections[caller.owner][connection] += 1
        return caller

    def admit(self, request: Request) -> Caller:
        """The caller of a request. Raises Unauthorized and Forbidden.

        A POST makes the service work. It counts against the limits of the caller's key, until its reply is sent.
        Raises RateLimited beyond them.
        """
        scope = request.scope
        caller: Caller | SpecPairError | None = scope.get(CALLER)
        if isinstance(caller, SpecPairError):
            raise caller
        if caller is None:
            caller = self.identify(scope)
        admitted: _Admitted | None = scope.get(_ADMITTED)
        if scope["method"] == "POST" and admitted is not None and admitted.account is None:
            account = self.accounts.of(caller.key_name)
            account.begin_request(caller.limits, self.accounts.clock())
            admitted.account = account
        return caller

    @contextmanager
    def counted(self, scope: Scope) -> Iterator[None]:
        """Count a request that is admitted within the block until the block's end."""
        admitted = scope[_ADMITTED] = _Admitted()
        try:
            yield
        finally:
            if admitted.account is not None:
                admitted.account.end_request(self.accounts.clock())
            if admitted.owner and (connection := connection_of(scope)) is not None:
                self._connections[admitted.owner] -= Counter([connection])
                if not self._connections[admitted.owner]:
                    del self._connections[admitted.owner]

    async def watch(self) -> None:
        """See every second, for ever, whether keys were revoked or the service is shared no longer."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.access.keys.look()
            if self.guests is not None and self.guests.share.off:
                self.guests = None
                _log.info("other machines are shut out: the service is no longer shared")
                self.on_unshared()

    def _end(self, owners: set[str]) -> None:
        """Break the connections of these owners' requests in flight, so that their texts end."""
        for owner in owners:
            for connection in [*self._connections.get(owner, ())]:
                connection.abort()

    def usage(self, caller: Caller) -> UsageResponse:
        """The usage that the caller may see: that of its key, or of all keys if its key is an admin's."""
        own = {caller.key_name: self.accounts.of(caller.key_name).usage}
        shown = self.accounts.usage() if caller.key is not None and caller.key.admin else own
        return UsageResponse(keys=[KeyUsage(key=name or None, **asdict(usage)) for name, usage in shown.items()])


class GatedRequests:
    """Middleware: refuses requests of web pages of foreign origins, and notes when a request is over."""

    def __init__(self, app: ASGIApp, gate: Gate, origins: Origins) -> None:
        self._app, self._gate, self._origins = app, gate, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._origins.check(scope["headers"])
        except ForeignOrigin as error:
            await error_reply(error)(scope, receive, send)
            return
        with self._gate.counted(scope):
            await self._app(scope, receive, send)
