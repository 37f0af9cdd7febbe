"""Addresses of verifiers: the Host header, loopback, and proxies from the environment."""

import ipaddress
import urllib.request
from contextlib import suppress
from urllib.parse import urlsplit

from drafter_client.errors import BadUrl


def authority_of(host: str, port: int | None) -> str:
    """The value of the Host header."""
    with suppress(UnicodeError):  # an invalid name: connecting reports it
        host = host.encode("idna").decode()
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxy_for(scheme: str, host: str) -> tuple[str, int] | None:
    """Host and port of the proxy that the environment names for `host`. None where there is none. Raises BadUrl."""
    proxy = urllib.request.getproxies().get(scheme)
    if not proxy or urllib.request.proxy_bypass(host):
        return None
    try:
        parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        return (parts.hostname, parts.port or 8080) if parts.hostname else None
    except ValueError as error:
        raise BadUrl(f"the proxy {proxy!r} of the environment ({scheme}_proxy) has no valid address: {error}") from None
