"""Lets guests join: `GET /join` shows the certificate to pin, `POST /join` exchanges a token for a key."""

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
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
_CLIENTS = 4096  # whose wrong tokens are counted
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
    """Lets guests join one service. Thread-safe."""

    def __init__(self, share: Share, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`host`: the machine's name. `clock`: in seconds."""
        self.share, self._host, self._clock = share, host, clock
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()  # by client: since when, and how many
        self.joined = self.refused = 0  # since the start

    def check_rate(self, address: str | None) -> None:
        """Raise RateLimited for a client with too many wrong tokens."""
        since, count = self._wrong.get(client_of(address), (0.0, 0))
        left = since + MINUTE - self._clock()
        if count >= WRONG and left > 0:
            self.refused += 1
            raise RateLimited(f"{count} wrong tokens came from your address: wait", retry_after=round(left, 3))

    def join(self, asked: JoinRequest, address: str | None) -> JoinResponse:
        """The key of a guest. Raises Forbidden for a token that is not open, and InternalError."""
        with self._lock:
            invitation = self._invitation(asked.token)
            if invitation is None:
                self._note_wrong(client_of(address))
                raise Forbidden(
                    "this link is not open: it was used already, is older than an hour, or was withdrawn. The host "
                    f"makes a new one: {PROGRAMS[self.share.service]} invite NAME"
                )
            try:
                if not self.share.invitations.use(invitation):
                    raise Forbidden("this link was used by another machine just now")
                name, key = self._add_key(invitation.name or asked.name)
            except (KeyFileError, OSError) as error:
                _log.error("a guest cannot join: %s", error)
                raise InternalError("the key cannot be stored: the host's log says why") from None
            self.joined += 1
        _log.info("%s joined from %s", name, client_of(address))
        addresses = [JoinAddress(host=each, port=self.share.port) for each in self.share.addresses()]
        return JoinResponse(name=name, key=key, service=self.share.service, host=self._host, addresses=addresses)

    def _invitation(self, token: str) -> Invitation | None:
        try:
            return self.share.invitations.find(read_value(token))
        except BadLink:
            return None

    def _note_wrong(self, client: str) -> None:
        now = self._clock()
        since, count = self._wrong.pop(client, (now, 0))
        if now - since > MINUTE:
            since, count = now, 0
        self._wrong[client] = since, count + 1
        if len(self._wrong) > _CLIENTS:
            self._wrong.popitem(last=False)
        self.refused += 1
        _log.warning("a wrong token to join came from %s (number %d in a minute)", client, count + 1)

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
