"""The address of a verifier: its URL, the proxy on the way to it, and how to connect."""

import http.client
import ipaddress
import ssl
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from drafter_client.errors import BadUrl, VerifierUnreachable


@dataclass(frozen=True, slots=True)
class Address:
    """Where a verifier listens and how to reach it. `authority`: the Host header of its requests. `prefix`: a path
    before the path of every request. `proxy`: host and port of the proxy; None: connect directly."""

    url: str
    secure: bool
    host: str
    port: int
    authority: str
    prefix: str
    proxy: tuple[str, int] | None

    @classmethod
    def read(cls, url: str) -> "Address":
        """Parse `url`, which has the form http(s)://host[:port][/prefix]. Raises BadUrl."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:  # as for an unfinished IPv6 address, or a port that is no number below 65536
            raise BadUrl(f"{url!r} is not the address of a verifier ({error}): write http://host:port") from None
        invalid = not parts.path.isascii() or any(each.isspace() or not each.isprintable() for each in url)
        if parts.scheme not in ("http", "https") or not parts.hostname or invalid:
            raise BadUrl(f"{url!r} is not the address of a verifier: write http://host:port")
        secure = parts.scheme == "https"
        return cls(
            url=url.rstrip("/"),
            secure=secure,
            host=parts.hostname,
            port=port or (443 if secure else 80),
            authority=authority_of(parts.hostname, port),
            prefix=parts.path.rstrip("/"),
            proxy=None if is_loopback(parts.hostname) else proxy_for(parts.scheme, parts.hostname),
        )

    def request_target(self, path: str) -> str:
        """What the first line of a request for `path` names: a whole URL if a proxy reads that line."""
        target = self.prefix + path
        return target if self.proxy is None or self.secure else f"http://{self.authority}{target}"

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """Open a connection, through the proxy if there is one. `timeout` in seconds. Raises VerifierUnreachable."""
        host, port = self.proxy or (self.host, self.port)
        if self.secure:
            context = ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=context
            )
            if self.proxy is not None:
                connection.set_tunnel(self.host, self.port)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        try:
            connection.connect()
        except (OSError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: an invalid host name
            connection.close()
            through = f" through the proxy {host}:{port}" if self.proxy is not None else ""
            raise VerifierUnreachable(
                f"no verifier answers at {self.url}{through} ({error}): is it running, and is the port right?"
            ) from error
        return connection


def authority_of(host: str, port: int | None) -> str:
    """The value of the Host header for a host and the port in its URL, if any."""
    with suppress(UnicodeError):  # an invalid name: connecting reports it
        host = host.encode("idna").decode()
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost` or a loopback address, which is never reached through a proxy."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxy_for(scheme: str, host: str) -> tuple[str, int] | None:
    """Host and port of the proxy that the environment names for `host`; None if there is none. Raises BadUrl."""
    proxy = urllib.request.getproxies().get(scheme)
    if not proxy or urllib.request.proxy_bypass(host):
        return None
    try:
        parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        return (parts.hostname, parts.port or 8080) if parts.hostname else None
    except ValueError as error:
        raise BadUrl(f"the proxy {proxy!r} of the environment ({scheme}_proxy) has no valid address: {error}") from None
