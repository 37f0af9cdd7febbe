"""`GET /docs`: the OpenAPI document as an interactive page, without files from other hosts."""

import json
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.replies.static_files import HEADERS, POLICY
from specpair.protocol.errors import NotFound

_ASSETS = {  # files of Swagger UI in the package fastapi-offline
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
# Relative addresses, so that the page works behind a proxy that adds a path prefix.
_PAGE = """<!doctype html>
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
_START = """// Without validatorUrl, the page would send the document to a public validator.
SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null});
"""
_HEADERS = HEADERS | {"Content-Security-Policy": POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")}
_KEPT = _HEADERS | {"Cache-Control": "max-age=86400"}  # seconds


def add_to(app: FastAPI) -> None:
    """Register the page, its files and the document. They need no key, since they hold no secrets."""

    @cache
    def written() -> bytes:  # once, as that takes milliseconds
        return json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    async def document() -> Response:
        return Response(written(), media_type="application/json")

    app.add_api_route("/openapi.json", document, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs", page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs/{name}", asset, methods=["GET"], include_in_schema=False)


async def page(request: Request) -> Response:
    """The page: Swagger UI with the OpenAPI document of the service."""
    title = escape(request.app.title)
    return Response(_PAGE.format(title=title), media_type="text/html; charset=utf-8", headers=_HEADERS)


async def asset(request: Request) -> Response:
    """One of the page's files. Raises NotFound."""
    name = request.path_params["name"]
    if name == "start.js":
        return Response(_START, media_type="text/javascript", headers=_HEADERS)
    if name not in _ASSETS:
        raise NotFound(f"there is nothing at {request.url.path}: see /docs for what there is")
    return Response(_folder().joinpath(name).read_bytes(), media_type=_ASSETS[name], headers=_KEPT)


def _folder() -> Traversable:
    return files("fastapi_offline").joinpath("static")
