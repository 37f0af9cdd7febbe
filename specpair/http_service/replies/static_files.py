"""A web page of a service, and the files that it loads: kept in memory, compressed once, and asked for again by tag."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from specpair.protocol.errors import NotFound

# Scripts, styles and requests come from and go to the service alone, and nothing may stand in an attribute or between
# tags. So a text of a model that was shown as HTML by mistake could still neither run nor send anything.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # kept, and asked for by its tag: another version of the service has other files
    "Vary": "Accept-Encoding",
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class _File:
    media_type: str
    body: bytes
    packed: bytes  # by gzip
    tag: str

    def reply(self, request: Request) -> Response:
        """The file, or 304 if the browser has it."""
        headers = HEADERS | {"ETag": self.tag}
        if self.tag in _listed(request, "if-none-match"):
            return Response(status_code=304, headers=headers)
        if "gzip" in _listed(request, "accept-encoding"):
            headers["Content-Encoding"] = "gzip"
            return Response(self.packed, media_type=self.media_type, headers=headers)
        return Response(self.body, media_type=self.media_type, headers=headers)


class StaticFiles:
    """The files of one folder of a package, and those that all pages share. They need no key: they hold no secrets.

    `paths`: of the routes, for metrics.
    """

    paths = ("/", "/page/{name}")

    def __init__(self, package: str, folder: str) -> None:
        """`folder`: of `package`; its `index.html` is the page, which names the others as `page/NAME`."""
        shared = files("specpair.http_service").joinpath("page")
        found = [*shared.iterdir(), *files(package).joinpath(folder).iterdir()]
        self._files: Mapping[str, _File] = MappingProxyType(
            {each.name: _file(each.name, each.read_bytes()) for each in found if _ending(each.name) in _TYPES}
        )

    def add_to(self, app: FastAPI) -> None:
        """Register the page at `/`."""
        app.add_api_route("/", self.page, methods=["GET"], include_in_schema=False)
        app.add_api_route("/page/{name}", self.file, methods=["GET"], include_in_schema=False)

    async def page(self, request: Request) -> Response:
        """The page."""
        return self._files["index.html"].reply(request)

    async def file(self, request: Request) -> Response:
        """One of the page's files. Raises NotFound."""
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise NotFound(f"there is nothing at {request.url.path}: the page is at /")
        return found.reply(request)


def _file(name: str, body: bytes) -> _File:
    return _File(_TYPES[_ending(name)], body, gzip.compress(body, mtime=0), f'"{sha256(body).hexdigest()[:32]}"')


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _listed(request: Request, header: str) -> set[str]:
    """The values of a header with a list, without their weights."""
    parts = request.headers.get(header, "").split(",")
    return {part.partition(";")[0].strip().removeprefix("W/") for part in parts if "q=0" not in part.split(";")[1:]}
