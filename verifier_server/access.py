"""Who may use the verifier, and in whose name: by the key, and where there is none by the address.

Without a key it serves loopback and private networks. X-Forwarded-For and Forwarded are never believed when they vouch
for somebody: they can only say that a request comes from further away than its connection. (uvicorn's --proxy-headers
puts the address that a proxy names in the place of the proxy's own before anything here sees the request.)
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from speculation.errors import Forbidden, Unauthorized

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
_HOST_BITS = 64  # of an IPv6 address: one machine has as many addresses as it likes in its subnet


@dataclass(frozen=True, slots=True)
class Caller:
    """In whose name a request comes."""

    owner: str = ""  # whose sessions it sees: a name made of the key; "": those without an owner, by their id
    client: str = ""  # whose quota it takes from: the owner, or where there is no key the address
    name: str = ""  # who is meant by "the caller's latest session"


ANYONE = Caller()


class Access:
    """The rule by which requests are let in. Pure: what it says depends on its arguments alone."""

    def __init__(self, api_key: str | None, insecure: bool) -> None:
        """`insecure`: without a key, serve every address."""
        self._key = None if api_key is None else api_key.encode()
        self._owner = "" if api_key is None else owner_of(api_key)
        self._insecure = insecure

    @property
    def keyed(self) -> bool:
        """Whether a key is needed."""
        return self._key is not None

    def admit(self, address: str | None, authorization: str, forwarded: Iterable[str] = ()) -> Caller:
        """Who sends a request with this Authorization header ("" for none) over a connection from `address`.

        `address`: None on a UNIX socket. `forwarded`: what X-Forwarded-For and Forwarded headers say.

        Raises Unauthorized, where there is a key, and Forbidden, where there is none and a public address.
        """
        if self._key is not None:
            scheme, _, given = authorization.partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), self._key):
                raise Unauthorized("this verifier wants its key: send the header Authorization: Bearer <key>")
            return Caller(self._owner, self._owner, f"{self._owner}@{address or ''}")
        if not self._insecure:
            _check_local(address, forwarded)
        return Caller("", client_of(address), f"{_digest(authorization)}@{address or ''}")

    def warning(self) -> str | None:
        """What to say at the start, where there is no key."""
        if self.keyed:
            return None
        if self._insecure:
            return (
                "VERIFIER_INSECURE is set and there is no key: everybody who can reach this port may use the verifier, "
                "read texts and fill it up. Set VERIFIER_API_KEY instead"
            )
        return (
            "no VERIFIER_API_KEY is set: everybody on this machine and in its private networks may use the verifier; "
            "other addresses are refused. Behind a proxy on this machine or network, set a key"
        )


def owner_of(key: str) -> str:
    """The name of a key: always the same, and the key cannot be told from it."""
    return hashlib.blake2b(key.encode(), digest_size=16, person=b"specpair-owner").hexdigest()


def _digest(header: str) -> str:
    """A name of fixed size for a header: names are kept, and a header may have 64 kB."""
    return hashlib.blake2b(header.encode(), digest_size=16, person=b"specpair-caller").hexdigest()


@lru_cache(maxsize=4096)
def client_of(address: str | None) -> str:
    """Whose quota a request without a key takes from: its address, for IPv6 its subnet; "" on a UNIX socket.

    One machine has all loopback addresses, so they are one client.
    """
    parsed = _parsed(address or "")
    if parsed is not None and parsed.is_loopback:
        return "127.0.0.1"
    if isinstance(parsed, IPv6Address) and parsed not in _LINK_LOCAL:
        return str(IPv6Network((int(parsed), _HOST_BITS), strict=False))
    return (address or "") if parsed is None else str(parsed)


@lru_cache(maxsize=4096)
def is_local(address: str) -> bool:
    """Whether it is an address of this machine or of a private network. What is no address is not."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in _LOCAL)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


def _check_local(address: str | None, forwarded: Iterable[str]) -> None:
    behind = [hop for header in forwarded for hop in _hops(header)]
    for each in behind if address is None else [address, *behind]:
        if not is_local(each):
            raise Forbidden(
                f"this verifier has no key, so it serves this machine and private networks only, and {each[:45]!r} is "
                "neither: start it with VERIFIER_API_KEY=<key> and give the drafter the same with --api-key, or with "
                "VERIFIER_INSECURE=1 to serve everybody without a key"
            )


def _hops(header: str) -> Iterable[str]:
    """The addresses that X-Forwarded-For, or Forwarded (RFC 7239), names."""
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
