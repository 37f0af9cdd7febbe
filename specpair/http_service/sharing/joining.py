"""Lets guests join: `GET /join` shows the certificate to pin, `POST /join` exchanges a token for a key."""

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from pydantic import Field

from specpair.command_line.setting_sources import PROGRAMS
from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import client_of
from specpair.http_service.keys.key_file import KeyFileError, KeyLimits, StoredKey, check_name, digest_of, new_key
from specpair.http_service.sharing.invitations import Invitation
from specpair.http_service.sharing.link import BadLink, read_value
from specpair.http_service.sharing.share import Share
from specpair.protocol.errors import Forbidden, InternalError, RateLimited
from specpair.protocol.messages import RequestModel
from specpair.protocol.response_fields import Response

MOST_BYTES, PATIENCE = 1024, 5.0  # of the body of a request to join, and seconds
WRONG, MINUTE = 10, 60.0  # wrong tokens of one client in so many seconds, after which it has to wait
SLOW = 1.0  # seconds for which a client that has to wait gets no reply
CLIENTS = 4096  # whose wrong tokens are counted
_MOST_NAMESAKES = 100
_log = logging.getLogger("specpair.service")


class JoinRequest(RequestModel):
    """A guest that joins."""

    token: str = Field(max_length=64, description="The token of the link.", examples=["Hn5LqMnZ4b1Wc0o8V2zXQg"])
    name: str = Field("", max_length=255, description="The name that the guest's key gets, unless the host chose one.")


class JoinAddress(Response):
    """Where the service can be reached."""

    host: str = Field(description="An address of the machine.", examples=["192.168.1.20"])
    port: int = Field(description="The port.", examples=[8000])


class JoinResponse(Response):
    """The guest's key."""

    name: str = Field(description="The key's name.", examples=["laptop"])
    key: str = Field(description="The key. It is shown only this once.", examples=["sp-…"])
    service: str = Field(description="verifier, drafter or router.", examples=["verifier"])
    host: str = Field(description="The machine's name.", examples=["bigbox"])
    addresses: list[JoinAddress] = Field(description="All ways to the service, the likeliest first.")


class InvitingResponse(Response):
    """How to recognise the host."""

    certificate: str = Field(description="The certificate to pin, in PEM. The link has its fingerprint.")
    service: str = Field(description="verifier, drafter or router.", examples=["verifier"])


class Guests:
    """Lets guests join one service. Used in the event loop, except where a method says so."""

    def __init__(self, share: Share, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`host`: the machine's name. `clock`: in seconds."""
        self.share, self._host, self._clock = share, host, clock
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()  # by client: since when, and how many
        self.joined = self.refused = 0  # since the start
        self._logged = -MINUTE  # when a refusal was logged

    @property
    def watched(self) -> int:
        """The number of clients whose wrong tokens are counted."""
        return len(self._wrong)

    def check_rate(self, address: str | None) -> None:
        """Raise RateLimited for a client with too many wrong tokens."""
        since, count = self._wrong.get(client_of(address), (0.0, 0))
        left = since + MINUTE - self._clock()
        if count >= WRONG and left > 0:
            self._note_refused(client_of(address))
            raise RateLimited(f"{count} wrong tokens came from your address: wait", retry_after=round(left, 3))

    def find(self, token: str, address: str | None) -> Invitation:
        """The open invitation of a token. Raises RateLimited, and Forbidden for a token that is not open."""
        self.check_rate(address)
        found = None
        with suppress(BadLink):
            found = self.share.invitations.find(read_value(token))
        if found is None:
            self._note_wrong(client_of(address))
            raise Forbidden(
                "this link is not open: it was used already, is older than an hour, or was withdrawn. The host makes a "
                f"new one: {PROGRAMS[self.share.service]} invite NAME"
            )
        return found

    def join(self, invitation: Invitation, wanted: str, address: str | None) -> JoinResponse:
        """The key of a guest who wants this name. Raises Forbidden for an invitation that another guest has used, and
        InternalError. Thread-safe."""
        with self._lock:
            try:
                if not self.share.invitations.use(invitation):
                    raise Forbidden("this link was used by another machine just now")
                name, key = self._add_key(invitation.name or wanted)
            except (KeyFileError, OSError) as error:
                _log.error("a guest cannot join: %s", error)
                raise InternalError("the key cannot be stored: the host's log says why") from None
            self.joined += 1
        _log.info("%s joined from %s", name, client_of(address))
        addresses = [JoinAddress(host=each, port=self.share.port) for each in self.share.addresses()]
        return JoinResponse(name=name, key=key, service=self.share.service, host=self._host, addresses=addresses)

    def _note_wrong(self, client: str) -> None:
        now = self._clock()
        since, count = self._wrong.pop(client, (now, 0))
        if now - since > MINUTE:
            since, count = now, 0
        self._wrong[client] = since, count + 1
        if len(self._wrong) > CLIENTS:
            self._wrong.popitem(last=False)
        self._note_refused(client)

    def _note_refused(self, client: str) -> None:
        """Count a refusal, and log it unless another one was logged in the last minute: there may be thousands."""
        self.refused += 1
        if self._clock() - self._logged >= MINUTE:
            self._logged = self._clock()
            _log.warning("a wrong token to join came from %s; refused since the start: %d", client, self.refused)

    def _add_key(self, wanted: str) -> tuple[str, str]:
        """A new key and its name: `wanted`, with a number behind it if another key has that."""
        taken = {key.name for key in key_file.read(self.share.keys)}
        base = plain_name(wanted)
        names = (base, *(f"{base}-{number}" for number in range(2, _MOST_NAMESAKES)))
        name = next(each for each in names if each not in taken)
        secret, joined = new_key(), datetime.now(UTC).isoformat(timespec="seconds")
        key_file.add(self.share.keys, StoredKey(name, digest_of(secret), KeyLimits(), joined=joined))
        return name, secret


def plain_name(wanted: str) -> str:
    """A name that a key may have, like a machine's name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted.partition(".local")[0])[:48].strip(".-") or "guest"
    try:
        check_name(name)
    except key_file.BadKeyEntry:
        return f"guest-{name}"
    return name
