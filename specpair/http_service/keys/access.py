"""Access control: identifies the caller of a request by the API key, or without a key by the address.

Without keys, a service serves loopback and private networks. The headers X-Forwarded-For and Forwarded can only
restrict access: they can show that a request comes from further away than its connection, never from nearer. (With
uvicorn's --proxy-headers, the address in such a header replaces the proxy's own address before a request gets here.)

A connection from the very address that it came to is one of this machine, even if the address is public: nobody else
gets the answers to packets with that sender, so nobody else can open the connection. A proxy on this machine can, as it
can on loopback; a request that it forwards is refused if a header shows where it comes from."""

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import DEFAULT, KeyFileError, KeyLimits, StoredKey, digest_of, seen_folder
from specpair.protocol.errors import Forbidden, Unauthorized

_log = logging.getLogger("specpair.service")
LOOK_EVERY = 1.0  # seconds between two looks at the file
_SEEN_EVERY = 60.0  # seconds between two notes that a key is in use

Stamp = tuple[int, int, int]  # what changes with a file: time in nanoseconds, size, inode
_UNLIMITED = KeyLimits()
_LOCAL = tuple(
    ip_network(network)
    for network in (
        *("127.0.0.0/8", "::1/128"),  # loopback
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),  # RFC 1918
        "100.64.0.0/10",  # shared address space: carriers, and networks like Tailscale's
        *("169.254.0.0/16", "fe80::/10"),  # link-local
        "fc00::/7",  # unique local addresses
    )
)
_LINK_LOCAL = IPv6Network("fe80::/10")
_SUBNET_BITS = 64  # prefix length of an IPv6 subnet; one machine can use every address of its subnet


class KeyStore:
    """The keys of one service. Used in the event loop."""

    def __init__(
        self, single: str | None = None, file: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`single`: the key that a setting gives.
        `clock`: in seconds.

        Raises KeyFileError.
        """
        self._file, self._clock = file, clock
        self._single = [] if single is None else [StoredKey(DEFAULT, digest_of(single))]
        self._stamp: Stamp | None = None if file is None else _stamp(file)
        self._keys = self._single + ([] if file is None else key_file.read(file))
        self._looked = clock()
        self._seen: dict[str, float] = {}  # when the use of a key was noted
        self.on_removed: Callable[[set[str]], object] = lambda _owners: None  # of keys that are accepted no longer

    @property
    def in_use(self) -> bool:
        """Whether requests need a key. They do with an empty file, too."""
        return self._file is not None or bool(self._single)

    def find(self, given: str) -> StoredKey | None:
        """The stored key equal to `given`; None: there is none.

        The time does not depend on which key it is: the hash is compared with each stored one.
        """
        self.look()
        digest = digest_of(given)
        found = self._with(digest)
        if found is None and self.look(at_once=True):  # who just got a key uses it at once
            found = self._with(digest)
        if found is not None and self._file is not None:
            self._note_use(found.name, self._file)
        return found

    def _with(self, digest: bytes) -> StoredKey | None:
        found = None
        for key in self._keys:
            if secrets.compare_digest(key.digest, digest):
                found = key
        return found

    def _note_use(self, name: str, file: Path) -> None:
        now = self._clock()
        if now - self._seen.get(name, -_SEEN_EVERY) >= _SEEN_EVERY:
            self._seen[name] = now
            with suppress(OSError):  # only a shared service has the folder
                (seen_folder(file) / name).touch(0o600)

    def look(self, *, at_once: bool = False) -> bool:
        """Reread the file if it has changed. If the file cannot be read, the keys stay as they were.

        Returns whether the file was read.

        `at_once`: also if the last look was less than `LOOK_EVERY` ago.
        """
        now = self._clock()
        if self._file is None or (now - self._looked < LOOK_EVERY and not at_once):
            return False
        self._looked = now
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before = {key.owner for key in self._keys}
        try:
            self._keys = self._single + key_file.read(self._file)
        except KeyFileError as error:
            _log.error("the keys are unchanged: %s", error)
            return False
        _log.info("keys reloaded: %d", len(self._keys))
        if removed := before - {key.owner for key in self._keys}:
            self.on_removed(removed)
        return True


def _stamp(file: Path) -> Stamp | None:
    """The file's stamp; None: there is no such file, or no access to it."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity of a request's sender."""

    owner: str = ""  # owner of the sessions it can use: a hash of the key; "" (no key): those whose id it knows
    client: str = ""  # the client whose quota counts: the owner, or without a key the address
    name: str = ""  # the key under which the caller's latest session is found: owner or hashed header, and address
    key: StoredKey | None = None

    @property
    def key_name(self) -> str:
        """The caller's API key in logs, metrics and usage; "" without a key."""
        return "" if self.key is None else self.key.name

    @property
    def limits(self) -> KeyLimits:
        return _UNLIMITED if self.key is None else self.key.limits


ANYONE = Caller()


@dataclass(frozen=True, slots=True)
class ServiceNames:
    """The names of a service and its settings in messages."""

    service: str  # what it is
    key: str  # the variable of its key
    insecure: str  # the variable that makes it serve everybody
    giving: str  # what to do with the key


VERIFIER = ServiceNames("verifier", "VERIFIER_API_KEY", "VERIFIER_INSECURE", "give the drafter the same with --api-key")
DRAFTER = ServiceNames(
    "drafter", "DRAFTER_SERVE_KEY", "DRAFTER_INSECURE", "give the program that asks the same as its API key"
)
ROUTER = ServiceNames("router", "ROUTER_API_KEY", "ROUTER_INSECURE", "give the drafter the same with --api-key")


class Access:
    """Admits or refuses requests, by the keys, which may change, and by the arguments."""

    def __init__(self, keys: KeyStore, insecure: bool = False, names: ServiceNames = VERIFIER) -> None:
        """`insecure`: without a key, serve every address."""
        self.keys, self._insecure, self.names = keys, insecure, names

    @property
    def keyed(self) -> bool:
        """Whether requests need a key."""
        return self.keys.in_use

    def identify(
        self, address: str | None, authorization: str, forwarded: Iterable[str] = (), server: str | None = None
    ) -> Caller:
        """The caller of a request, if it may use the service.

        `address`: the other end of the connection; None on a UNIX socket.
        `authorization`: the value of this header; "" if it is missing.
        `forwarded`: the values of X-Forwarded-For and Forwarded headers.
        `server`: this end of the connection.

        Raises Unauthorized for a missing or wrong key. Raises Forbidden for a public address without a key.
        """
        if self.keys.in_use:
            scheme, _, given = authorization.partition(" ")
            sent = given.strip() if scheme.lower() == "bearer" else ""
            key = self.keys.find(sent)
            if key is None:
                if sent:
                    raise Unauthorized(f"this {self.names.service} does not take the key that was sent: check it")
                raise Unauthorized(
                    f"this {self.names.service} wants its key: send the header Authorization: Bearer <key>"
                )
            return Caller(key.owner, key.owner, f"{key.owner}@{address or ''}", key)
        found, names = None, self.names
        if not self._insecure:
            found = stranger(None if address == server else address, forwarded)
        if found is not None:
            raise Forbidden(
                f"this {names.service} has no key, so it serves this machine and private networks only, and "
                f"{found[:45]!r} is neither: start it with {names.key}=<key> and {names.giving}, or with "
                f"{names.insecure}=1 to serve everybody without a key"
            )
        return _without_key(authorization, address)

    def warning(self) -> str | None:
        """The warning to log at the start if there is no key, else None."""
        names = self.names
        if self.keyed:
            return None
        if self._insecure:
            return (
                f"{names.insecure} is set and there is no key: everybody who can reach this port can use the "
                f"{names.service}, read texts and exhaust its capacity. Set {names.key} instead"
            )
        return (
            f"no {names.key} is set: everybody on this machine can use the {names.service}, and where it listens to "
            "more than loopback, everybody in its private networks, too; other addresses are refused. Behind a proxy "
            "on this machine or network, set a key"
        )


@lru_cache(maxsize=256)
def _without_key(authorization: str, address: str | None) -> Caller:
    # Callers' names are stored, and a header can have 32 kB.
    digest = hashlib.blake2b(authorization.encode(), digest_size=16, person=b"specpair-caller").hexdigest()
    return Caller("", client_of(address), f"{digest}@{address or ''}")


@lru_cache(maxsize=4096)
def client_of(address: str | None) -> str:
    """The client whose quota counts for a request without a key: its address, for IPv6 the subnet; "" on a UNIX socket.

    All loopback addresses belong to one machine, so they are one client.
    """
    parsed = _parsed(address or "")
    if parsed is not None and parsed.is_loopback:
        return "127.0.0.1"
    if isinstance(parsed, IPv6Address) and parsed not in _LINK_LOCAL:
        return str(IPv6Network((int(parsed), _SUBNET_BITS), strict=False))
    return (address or "") if parsed is None else str(parsed)


@lru_cache(maxsize=4096)
def is_local(address: str) -> bool:
    """Whether `address` is one of this machine or of a private network. False for text that is not an address."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in _LOCAL)


def stranger(address: str | None, forwarded: Iterable[str]) -> str | None:
    """The first address that is not local: `address` (None: known to be local), or an address in a `forwarded` header.

    None: all are local.
    """
    hops = [hop for header in forwarded for hop in _hops(header)]
    return next((each for each in (hops if address is None else [address, *hops]) if not is_local(each)), None)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    """The address; IPv4 where IPv6 only wraps it; None for text that is not an address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


def _hops(header: str) -> Iterable[str]:
    """The addresses in the value of an X-Forwarded-For or Forwarded (RFC 7239) header."""
    for part in header.split(","):
        hop = part.strip()
        if "=" in hop:
            pairs = (pair.partition("=") for pair in hop.split(";"))
            hop = next((value.strip().strip('"') for name, _, value in pairs if name.strip().lower() == "for"), "")
        if hop.startswith("["):
            hop = hop[1:].partition("]")[0]
        elif hop.count(":") == 1:
            hop = hop.partition(":")[0]
        yield hop
