"""The addresses at which other machines may reach this one."""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

_NO_WAY_IN = re.compile(r"(lo|docker|br-|virbr|veth|cni|flannel|cali|vmnet|vboxnet|podman|lxc|bridge)\d*")
_OVERLAY = ip_network("100.64.0.0/10")  # Tailscale's, for example: it works from anywhere, but may be slower


def own_addresses() -> list[str]:
    """The addresses of this machine's interfaces, the likeliest first; none for a machine without a network.

    Addresses of bridges and containers are left out: other machines do not reach them.
    """
    import ifaddr  # only a service that shares needs it

    found = {
        address: None
        for adapter in ifaddr.get_adapters()
        if not _NO_WAY_IN.match(adapter.nice_name) and not _NO_WAY_IN.match(adapter.name)
        for address in _addresses(adapter.ips)
    }
    return [str(each) for each in sorted(found, key=_rank)]


def _addresses(ips: Iterable[Any]) -> Iterator[IPv4Address | IPv6Address]:
    for each in ips:
        text = each.ip if isinstance(each.ip, str) else each.ip[0]
        address = ip_address(text)
        if not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified):
            yield address


def _rank(address: IPv4Address | IPv6Address) -> tuple[bool, bool, bool]:
    """Private networks first, IPv4 before IPv6: people can read it."""
    overlay = isinstance(address, IPv4Address) and address in _OVERLAY
    return address.version == 6, overlay, not address.is_private
