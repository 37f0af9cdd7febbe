"""The gate that every request passes: it admits callers, holds the keys to their limits, and refuses foreign pages."""

from dataclasses import asdict
from pathlib import Path

from pydantic import SecretStr
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from specpair.command_line.given_values import SettingsError
from specpair.http_service.keys.access import Access, Caller, ServiceNames
from specpair.http_service.keys.accounts import Account, Accounts
from specpair.http_service.keys.key_file import KeyFileError
from specpair.http_service.keys.key_store import KeyStore
from specpair.http_service.observability.logs import note_key
from specpair.http_service.replies.json_replies import error_reply
from specpair.http_service.web_pages import Origins
from specpair.protocol.errors import ForeignOrigin
from specpair.protocol.service_responses import KeyUsage, UsageResponse

_FORWARDED = (b"x-forwarded-for", b"forwarded")
_IN_FLIGHT = "specpair.in_flight"  # key of the scope: the accounts that count the request as in flight


class Gate:
    """The gate of one service. Used in the event loop."""

    def __init__(self, access: Access, accounts: Accounts) -> None:
        self.access, self.accounts = access, accounts

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

    def admit(self, request: Request) -> Caller:
        """The caller of a request. Raises Unauthorized and Forbidden.

        A POST makes the service work. It counts against the limits of the caller's key, until its reply is sent.
        Raises RateLimited beyond them.
        """
        scope, authorization, api_key, forwarded = request.scope, b"", b"", []
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
        in_flight: list[Account] | None = scope.get(_IN_FLIGHT)
        if scope["method"] == "POST" and in_flight == []:
            account = self.accounts.of(caller.key_name)
            account.begin_request(caller.limits, self.accounts.clock())
            in_flight.append(account)
        return caller

    def leave(self, in_flight: list[Account]) -> None:
        """A request is over."""
        for account in in_flight:
            account.end_request(self.accounts.clock())

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
        in_flight: list[Account] = []
        scope[_IN_FLIGHT] = in_flight
        try:
            await self._app(scope, receive, send)
        finally:
            self._gate.leave(in_flight)
