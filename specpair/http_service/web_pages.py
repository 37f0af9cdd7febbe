"""Decides which web pages may use a service, by the request's host and by the page's origin.

A page at `http://evil.example:8000` may have its name resolved anew, to an address of this machine or of a private
network (DNS rebinding). The browser then takes the service for the page's own server: the page sends requests and reads
replies, whatever the header Origin says. But the header Host still has the page's name. Addresses and the names of this
machine are no names of such a page.

A browser sends some requests of a foreign page without asking the service first: a POST with a simple content type, for
example. The page cannot read the reply, but the text would be generated. So such requests are refused by their header
Origin, which a page cannot change, and which programs other than browsers leave out.
"""

import asyncio
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from specpair.protocol.errors import ForeignHost, ForeignOrigin, InvalidHead

ANY = "*"
_LABEL = "[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?"
_NAME = rf"{_LABEL}(\.{_LABEL})*"
_PATTERN = re.compile(rf"(\*\.)?{_NAME}")
_HOST = re.compile(
    rf"(\[(?P<address>[0-9a-f]*:[0-9a-f:.]*)(%[a-z0-9._-]+)?\]|(?P<name>{_NAME})\.?)(:(?P<port>[0-9]{{0,5}}))?"
)
_LONGEST = 300  # characters of a header Host: a name has 253, at most
_FROM_CONTAINERS = ("host.docker.internal", "gateway.docker.internal", "host.containers.internal")
NULL = "null"  # the origin of pages that have none of their own: files, sandboxed frames. Any page can get it.
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")
_APP = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*://(\*|[A-Za-z0-9._~-]*(:\d{1,5})?)")  # of an app or an extension
_PORTS = {"http": ":80", "https": ":443"}  # which origins and hosts leave out
# Headers that pages of allowed origins may read.
EXPOSED = ("X-Session-Id", "X-Request-Id", "X-Specpair-Ignored", "Retry-After")


def read_hosts(text: str) -> tuple[str, ...]:
    """The names in a setting, separated by commas, or `*` alone. Raises ValueError with the reason."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if names == (ANY,):
        return names
    for name in names:
        if name == ANY:
            raise ValueError("* allows every name: leave out the others")
        if not _PATTERN.fullmatch(name):
            raise ValueError(
                f"{name!r} is not the name of a host: write bigbox.example or *.example, in lower case, without "
                "scheme, port and path (addresses need not be allowed)"
            )
    return names


class Hosts:
    """The names that a service answers to. Used in the event loop."""

    def __init__(self, allowed: Sequence[str] = (), setting: str = "allowed_hosts") -> None:
        """`allowed`: from `read_hosts`.
        `setting`: the name of the setting, for errors.
        """
        self._setting = setting
        self._any = tuple(allowed) == (ANY,)
        own = socket.gethostname().lower()  # what this machine knows without asking others
        short = own.partition(".")[0]
        self._names = {name for name in allowed if not name.startswith("*.")}
        self._names |= {own, short, f"{short}.local", *_FROM_CONTAINERS}
        self._suffixes = tuple(name[1:] for name in allowed if name.startswith("*."))
        self._looked_up: asyncio.Task[str] | None = None

    async def check(self, host: str) -> None:
        """Raise ForeignHost for a request to an unknown name. `host`: from `host_of`.

        A request without a Host is of a program: browsers always send it.
        """
        if host and not await self._is_known(host):
            raise ForeignHost(
                f"the request is for {host[:100]!r}, which is no address or known name of this machine, so a "
                f"foreign web page may have sent it: add the name to {self._setting}, or set a key"
            )

    async def _is_known(self, host: str) -> bool:
        if self._any or _no_page_has(host) or host in self._names or host.endswith(self._suffixes):
            return True
        if self._looked_up is None:  # in a thread, since a broken DNS takes seconds; and once
            self._looked_up = asyncio.create_task(asyncio.to_thread(socket.getfqdn))
        full_name = await asyncio.shield(self._looked_up)
        self._names.add(full_name.lower())
        return host in self._names


def host_of(scope: Mapping[str, Any]) -> str:
    """The host that a request or an upgrade names: in lower case, without its port and the dot at its end; empty: none,
    which HTTP/1.0 allows. `scope`: of ASGI.

    Raises InvalidHead for a head that can be read in two ways, by a proxy and by this service.
    """
    hosts, origins = [], 0
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origins += 1
    path = scope["path"]
    if not (path.startswith("/") or (path == "*" and scope.get("method") == "OPTIONS")):
        raise InvalidHead(f"the request is for {path[:100]!r}: write the path alone, which begins with /")
    if origins > 1:
        raise InvalidHead(f"the request has {origins} headers Origin: send one, or none")
    if len(hosts) == 1:
        return _host_in(hosts[0])
    if hosts or scope["http_version"] != "1.0":
        raise InvalidHead(f"the request has {len(hosts)} headers Host: send one")
    return ""


@lru_cache(maxsize=1024)
def _host_in(header: bytes) -> str:
    text = header.decode("latin-1").strip(" \t").lower()
    found = _HOST.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None or int(found["port"] or 0) > 65535 or not (found["name"] or _no_page_has(found["address"])):
        raise InvalidHead(
            f"the header Host is {text[:100]!r}, which is no host: send a name or an address, with or without a port"
        )
    return found["name"] or found["address"]


@lru_cache(maxsize=1024)
def _no_page_has(host: str) -> bool:
    """Whether `host` is an address, or localhost."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_origins(text: str) -> tuple[str, ...]:
    """The origins in a setting, separated by commas. `*` stands for every origin but `null`, and `scheme://*` for those
    of apps and extensions whose id changes. Raises ValueError, which says what is wrong."""
    origins = tuple(part.strip() for part in text.split(",") if part.strip())
    for origin in origins:
        if origin == NULL:
            continue
        if origin == ANY:
            if set(origins) - {ANY, NULL}:
                raise ValueError("* allows every origin but null: leave out the others")
            continue
        if not (_ORIGIN.fullmatch(origin) or _APP.fullmatch(origin)):
            raise ValueError(
                f"{origin!r} is not an origin: write https://host or http://host:port, in lower case, without a path. "
                "Those of apps and extensions are as app://name, or vscode-webview://* for any name"
            )
        port = _PORTS.get(origin.partition(":")[0])
        if port is not None and origin.endswith(port):
            raise ValueError(f"{origin!r}: browsers leave out the port {port[1:]} there, so leave it out, too")
    return origins


class Origins:
    def __init__(self, allowed: Sequence[str], setting: str) -> None:
        """`allowed`: from `read_origins`.
        `setting`: the name of the setting, for errors.
        """
        self.any = ANY in allowed
        self.allowed, self._setting = frozenset(allowed), setting

    def allows(self, origin: str) -> bool:
        """Whether the setting allows the value of a header Origin."""
        if origin == NULL or origin in self.allowed:
            return origin in self.allowed
        scheme, separator, _ = origin.partition("://")
        return self.any or (bool(separator) and f"{scheme}://*" in self.allowed)

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise ForeignOrigin for a request of a page of another origin, unless that is allowed. `headers`: raw."""
        origin = host = b""
        for name, value in headers:
            if name == b"origin":
                origin = value
            elif name == b"host":
                host = value
        if not origin:
            return
        page = origin.decode("latin-1")
        if self.allows(page) or _same_host(page, host.decode("latin-1").lower()):
            return
        raise ForeignOrigin(
            f"the request comes from a web page of {page[:100]!r}, which may not use this service: set {self._setting} "
            "to that origin to allow it"
        )


def _same_host(origin: str, host: str) -> bool:
    """Whether `origin` names the host and the port of the header Host."""
    scheme, _, page = origin.partition("://")
    port = _PORTS.get(scheme)
    return port is not None and bool(host) and page.removesuffix(port) == host.removesuffix(port)
