"""Which addresses are of this machine or of a private network, and which addresses are one client."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

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
    """The first address that is not local: `address` (None: known to be local), or one in a `forwarded` header.

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
