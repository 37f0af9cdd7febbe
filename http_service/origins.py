"""Which web pages may use a service: those that it serves itself, and those of the origins that a setting allows.

A browser sends some requests of a foreign page without asking the service first: a POST with a simple content type, for
example. The page cannot read the reply, but the text would be generated. So such requests are refused by their header
Origin, which a page cannot change, and which programs other than browsers leave out.
"""

import re
from collections.abc import Iterable, Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from speculation.errors import ForeignOrigin

ANY = "*"
EXPOSED = ("X-Session-Id", "X-Request-Id", "Retry-After")  # headers that pages of allowed origins may read
_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")
_PORTS = {"http": ":80", "https": ":443"}  # which origins and hosts leave out


def read_origins(text: str) -> tuple[str, ...]:
    """The origins in a setting, separated by commas, or `*` alone. Raises ValueError, which says what is wrong."""
    origins = tuple(part.strip() for part in text.split(",") if part.strip())
    if origins == (ANY,):
        return origins
    for origin in origins:
        if origin == ANY:
            raise ValueError("* allows every origin: leave out the others")
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"{origin!r} is not an origin: write https://host or http://host:port, in lower case and without a path"
            )
        scheme = origin.partition(":")[0]
        if origin.endswith(_PORTS[scheme]):
            raise ValueError(
                f"{origin!r}: browsers leave out the port {_PORTS[scheme][1:]} there, so leave it out, too"
            )
    return origins


class Origins:
    """The origins whose pages may use a service."""

    def __init__(self, allowed: Sequence[str], setting: str) -> None:
        """`allowed`: from `read_origins`. `setting`: the name of the setting, for errors."""
        self.allowed, self._setting = tuple(allowed), setting

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise ForeignOrigin for a request of a page of another origin, unless that is allowed. `headers`: raw."""
        origin = host = b""
        for name, value in headers:
            if name == b"origin":
                origin = value
            elif name == b"host":
                host = value
        if not origin or self.allowed == (ANY,):
            return
        page = origin.decode("latin-1")
        if page in self.allowed or _same_host(page, host.decode("latin-1").lower()):
            return
        raise ForeignOrigin(
            f"the request comes from a web page of {page[:100]!r}, which may not use this service: set {self._setting} "
            "to that origin to allow it"
        )


def add_cors(app: FastAPI, origins: Origins) -> None:
    """Let pages of the allowed origins read replies. Without allowed origins, replies have no header of CORS."""
    if origins.allowed:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins.allowed,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=EXPOSED,
        )


def _same_host(origin: str, host: str) -> bool:
    """Whether `origin` names the host and the port of the header Host."""
    scheme, _, page = origin.partition("://")
    port = _PORTS.get(scheme)
    return port is not None and bool(host) and page.removesuffix(port) == host.removesuffix(port)
