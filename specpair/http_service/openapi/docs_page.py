"""`GET /docs`: the OpenAPI document as an interactive page, without files from other hosts."""

import json
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

from specpair.protocol.errors import NotFound

_ASSETS = {  # files of Swagger UI in the package fastapi-offline
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
# Makes the browser refuse every connection to another host. Swagger UI needs inline scripts, inline styles and images
# as data URLs.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
)


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
    # Relative addresses, so that the page works behind a proxy that adds a path prefix.
    html = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=request.app.title,
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
        swagger_ui_parameters={"validatorUrl": None},  # without this, the page sends the document to a public validator
    )
    html.headers["Content-Security-Policy"] = _POLICY
    return html


async def asset(request: Request) -> Response:
    """One of the page's files. Raises NotFound."""
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise NotFound(f"there is nothing at {request.url.path}: see /docs for what there is")
    headers = {"Cache-Control": "max-age=86400"}  # seconds
    return Response(_folder().joinpath(name).read_bytes(), media_type=_ASSETS[name], headers=headers)


def _folder() -> Traversable:
    return files("fastapi_offline").joinpath("static")
