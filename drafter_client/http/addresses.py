"""Resolves the setting that names verifiers: URLs with commas between them, names of several machines. Finds the proxy
on the way to each."""

import socket
import urllib.request
from collections.abc import Sequence
from typing import NamedTuple

import httpx

from drafter_client.errors import BadUrl
from specpair.protocol.http_reply import is_loopback


class VerifierAddress(NamedTuple):
    """A verifier's `url`, and the network address to use of those that its name has (empty: any)."""

    url: str
    at: str = ""

    def __str__(self) -> str:
        return f"{self.url} ({self.at})" if self.at else self.url


def addresses_of(verifiers: str | Sequence[str], *, direct: bool) -> list[VerifierAddress]:
    """The addresses of verifiers, whose URLs have commas between them. Raises BadUrl.

    `direct`: whether names are looked up here, unless a proxy is on the way.
    """
    given = verifiers.split(",") if isinstance(verifiers, str) else verifiers
    urls = list(dict.fromkeys(url for each in given if (url := each.strip())))
    if not urls:
        raise BadUrl("no verifier is named: write http://host:port, and commas between several")
    places = {url: parsed(with_scheme(url)) for url in urls}
    return [
        address
        for url, place in places.items()
        for address in (_machines(url, place) if direct and proxy_for(place) is None else [VerifierAddress(url)])
    ]


def _machines(url: str, place: httpx.URL) -> list[VerifierAddress]:
    """The verifier at `url`; several if its name has several network addresses of one family.

    A machine with an IPv4 and an IPv6 address is one verifier. A name that nobody knows is one, too, as the first
    request says what is wrong with it.
    """
    try:
        found = socket.getaddrinfo(place.host, place.port or place.scheme, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return [VerifierAddress(url)]
    family = found[0][0]  # the one that the system prefers
    hosts = list(dict.fromkeys(str(each[4][0]) for each in found if each[0] is family))
    return [VerifierAddress(url)] if len(hosts) == 1 else [VerifierAddress(url, host) for host in hosts]


def with_scheme(url: str) -> str:
    """The address with a scheme: http:// if it has none, as in `bigbox:8000`."""
    # "http:host" lacks its slashes; http://http:host would be a host named http.
    return url if "://" in url or url.startswith(("http:", "https:")) else f"http://{url}"


def parsed(url: str) -> httpx.URL:
    """The address of a verifier. Raises BadUrl."""
    if "@" in url:
        raise BadUrl("the address of a verifier must not hold a user or password: give its key with --api-key")
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadUrl(f"{url!r} is not the address of a verifier ({error}): write http://host:port") from None
    if address.port is not None and not 1 <= address.port <= 65535:
        reason = f"port {address.port} is not between 1 and 65535"
        raise BadUrl(f"{url!r} is not the address of a verifier ({reason}): write http://host:port")
    # httpx quotes spaces and foreign letters in a path, which are mistakes in an address.
    mistaken = " " in url or not url.partition("//")[2].partition("/")[2].isascii()
    if address.scheme not in ("http", "https") or not address.host or mistaken:
        raise BadUrl(f"{url!r} is not the address of a verifier: write http://host:port")
    return address


def proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy that the environment names for `url`, with its user and password; None: connect directly.

    It is named by HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, and for none of the hosts in NO_PROXY. Loopback is never
    reached through a proxy. Raises BadUrl.
    """
    proxies = urllib.request.getproxies()
    variable = url.scheme if url.scheme in proxies else "all"
    proxy = proxies.get(variable)
    if not proxy or is_loopback(url.host) or urllib.request.proxy_bypass(url.host):
        return None
    try:
        address = httpx.URL(proxy if "://" in proxy else f"http://{proxy}")
        if b"@" not in address.raw_path:  # else a password holds the slash that ends the host
            return httpx.Proxy(address)
    except (httpx.InvalidURL, ValueError):
        pass  # the error may quote the password
    shown = proxy.rpartition("@")[2]  # without user and password
    raise BadUrl(
        f"the proxy {shown!r} of the environment ({variable}_proxy) has no valid address: write "
        "http://user:password@host:port, and # / ? @ in a password as %23 %2F %3F %40"
    )
