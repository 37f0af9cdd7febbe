"""The web pages of a service: its page, whose files are kept in memory and have an ETag; and `GET /docs`, the
OpenAPI document as an interactive page, without files from other hosts."""

import json
import re
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

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
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_DOCS_FILES = {  # files of Swagger UI in the package fastapi-offline
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
# Relative addresses, so that the page works behind a proxy that adds a path prefix.
_DOCS_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="docs/favicon.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_DOCS_START = """// Without validatorUrl, the page would send the document to a public validator.
SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null});
"""
_DOCS_HEADERS = HEADERS | {
    "Content-Security-Policy": POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
}


class StaticFiles:
    """The files of one folder of a package, and those that all pages share. They need no key: they hold no secrets.

    `paths`: of the routes, for metrics.
    """

    paths = ("/", "/page/{name}")

    def __init__(self, package: str, folder: str) -> None:
        """`folder`: of `package`; its `index.html` is the page, which names the others as `page/NAME`."""
        shared = files("specpair.http_service").joinpath("page")
        found = [*shared.iterdir(), *files(package).joinpath(folder).iterdir()]
        self._files = {each.name: each.read_bytes() for each in found if _ending(each.name) in _TYPES}
        self._tags = {name: f'"{sha256(body).hexdigest()[:32]}"' for name, body in self._files.items()}

    def add_to(self, app: FastAPI) -> None:
        for path in self.paths:
            app.add_api_route(path, self.file, methods=["GET"], include_in_schema=False)

    async def file(self, request: Request) -> Response:
        """The page or one of its files; 304 if the browser has it. Raises NotFound."""
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            raise NotFound(f"there is nothing at {request.url.path}: the page is at /")
        headers = HEADERS | {"ETag": self._tags[name]}
        if self._tags[name] in re.findall(r'"\w*"', request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(self._files[name], media_type=_TYPES[_ending(name)], headers=headers)


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def add_docs(app: FastAPI) -> None:
    """Register `/docs`, its files and the OpenAPI document. They need no key, since they hold no secrets."""

    @cache
    def written() -> bytes:  # once, as that takes milliseconds
        return json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    async def document() -> Response:
        return Response(written(), media_type="application/json")

    async def page() -> Response:
        shown = _DOCS_PAGE.format(title=escape(app.title))
        return Response(shown, media_type="text/html; charset=utf-8", headers=_DOCS_HEADERS)

    async def asset(request: Request) -> Response:
        """One of the page's files. Raises NotFound."""
        name = request.path_params["name"]
        if name == "start.js":
            return Response(_DOCS_START, media_type="text/javascript", headers=_DOCS_HEADERS)
        if name not in _DOCS_FILES:
            raise NotFound(f"there is nothing at {request.url.path}: see /docs for what there is")
        body = files("fastapi_offline").joinpath("static", name).read_bytes()
        headers = _DOCS_HEADERS | {"Cache-Control": "max-age=86400"}  # seconds
        return Response(body, media_type=_DOCS_FILES[name], headers=headers)

    for path, endpoint in (("/openapi.json", document), ("/docs", page), ("/docs/{name}", asset)):
        app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
