"""Which web pages may use a service: those that it serves itself, and those of the origins that a setting allows.

A browser sends some requests of a foreign page without asking the service first: a POST with a simple content type, for
example. The page cannot read the reply, but the text would be generated. So such requests are refused by their header
Origin, which a page cannot change, and which programs other than browsers leave out.
"""

import re
from collections.abc import Iterable, Sequence

from specpair.protocol.errors import ForeignOrigin

ANY = "*"
NULL = "null"  # the origin of pages that have none of their own: files, sandboxed frames. Any page can get it.
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")
_APP = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*://(\*|[A-Za-z0-9._~-]*(:\d{1,5})?)")  # of an app or an extension
_PORTS = {"http": ":80", "https": ":443"}  # which origins and hosts leave out


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
    """The origins whose pages may use a service."""

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
