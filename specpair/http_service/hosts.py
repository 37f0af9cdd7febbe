"""The host that a request names, and which names a service without a key answers to: those that no page can have.

A page at `http://evil.example:8000` may have its name resolved anew, to an address of this machine or of a private
network (DNS rebinding). The browser then takes the service for the page's own server: the page sends requests and reads
replies, whatever the header Origin says. But the header Host still has the page's name. Addresses and the names of this
machine are no names of such a page.
"""

import asyncio
import re
import socket
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from specpair.protocol.errors import ForeignHost, InvalidHead

ANY = "*"
_LABEL = "[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?"
_NAME = rf"{_LABEL}(\.{_LABEL})*"
_PATTERN = re.compile(rf"(\*\.)?{_NAME}")
_HOST = re.compile(
    rf"(\[(?P<address>[0-9a-f]*:[0-9a-f:.]*)(%[a-z0-9._-]+)?\]|(?P<name>{_NAME})\.?)(:(?P<port>[0-9]{{0,5}}))?"
)
_LONGEST = 300  # characters of a header Host: a name has 253, at most
_FROM_CONTAINERS = ("host.docker.internal", "gateway.docker.internal", "host.containers.internal")


def read_hosts(text: str) -> tuple[str, ...]:
    """The names in a setting, separated by commas, or `*` alone. Raises ValueError, which says what is wrong."""
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
        self._names = {name for name in allowed if not name.startswith("*.")} | _own_names()
        self._suffixes = tuple(name[1:] for name in allowed if name.startswith("*."))
        self._looked_up: asyncio.Task[str] | None = None

    async def check(self, host: str) -> None:
        """Raise ForeignHost for a request to a name that is not known. `host`: from `host_of`.

        A request without a Host is of a program: browsers always send it.
        """
        if host and not await self._known(host):
            raise ForeignHost(
                f"the request is for {host[:100]!r}, which is no address and no known name of this machine, so a "
                f"foreign web page may have sent it: add the name to {self._setting}, or set a key"
            )

    async def _known(self, host: str) -> bool:
        if self._any or _no_page_has(host) or host in self._names or host.endswith(self._suffixes):
            return True
        if self._looked_up is None:  # in a thread, since a broken DNS takes seconds; and once
            self._looked_up = asyncio.create_task(asyncio.to_thread(socket.getfqdn))
        full_name = await asyncio.shield(self._looked_up)
        self._names.add(full_name.lower())
        return host in self._names


def _own_names() -> set[str]:
    """The names of this machine that it knows without asking others."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return {name, short, f"{short}.local", *_FROM_CONTAINERS}


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
