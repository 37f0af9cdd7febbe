"""The address of a verifier, and the proxy on the way to it."""

import ipaddress
import urllib.request

import httpx

from drafter_client.errors import BadUrl


def verifier_url(url: str) -> httpx.URL:
    """Parse `url`, which has the form http(s)://host[:port][/prefix]. Raises BadUrl."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadUrl(f"{url!r} is not the address of a verifier ({error}): write http://host:port") from None
    # httpx quotes spaces and foreign letters in a path, which are mistakes in an address.
    mistaken = " " in url or not url.partition("//")[2].partition("/")[2].isascii()
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535 or mistaken:
        raise BadUrl(f"{url!r} is not the address of a verifier: write http://host:port")
    return parsed


def proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy that the environment names for `url`, with its user and password; None: connect directly.

    It is named by HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, and for none of the hosts in NO_PROXY. Loopback is never
    reached through a proxy. Raises BadUrl.
    """
    proxies = urllib.request.getproxies()
    variable = url.scheme if url.scheme in proxies else "all"
    proxy = proxies.get(variable)
    if not proxy or _is_loopback(url.host) or urllib.request.proxy_bypass(url.host):
        return None
    try:
        return httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}")
    except (httpx.InvalidURL, ValueError) as error:
        shown = proxy.rpartition("@")[2]  # without user and password
        raise BadUrl(
            f"the proxy {shown!r} of the environment ({variable}_proxy) has no valid address: {error}"
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
