"""Which names a service without a key answers to: those that no foreign page can have.

A page at `http://evil.example:8000` may have its name resolved anew, to an address of this machine or of a private
network (DNS rebinding). The browser then takes the service for the page's own server: the page sends requests and reads
replies, whatever the header Origin says. But the header Host still has the page's name. Addresses and the names of this
machine are no names of such a page.
"""

import asyncio
import re
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address

from specpair.protocol.errors import ForeignHost

ANY = "*"
_PATTERN = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
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

    async def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise ForeignHost for a request to a name that is not known.

        `headers`: raw.

        A request without a Host is of a program: browsers always send it.
        """
        for name, value in headers:
            if name == b"host" and not await self._known(_host_of(value)):
                shown = value.decode("latin-1")[:100]
                raise ForeignHost(
                    f"the request is for {shown!r}, which is no address and no known name of this machine, so a "
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


@lru_cache(maxsize=1024)
def _host_of(header: bytes) -> str:
    """The host in a header Host, in lower case, without the port and the dot at its end."""
    host = header.decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return (name if colon and (port.isdigit() or not port) else host).removesuffix(".")


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
