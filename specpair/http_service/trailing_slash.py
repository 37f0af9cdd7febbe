"""Middleware: each path works with a trailing slash, too."""

from starlette.types import ASGIApp, Receive, Scope, Send


class TrailingSlash:
    """Serves requests by another application, without the slash at the end of the path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(without_slash(scope) if scope["type"] == "http" else scope, receive, send)


def without_slash(scope: Scope) -> Scope:
    """The scope of a request without the slash at the end of its path."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if path.endswith("/") and path not in ("/", "/docs/"):  # the documentation page has relative addresses
        return {**scope, "path": scope["path"][:-1]}
    return scope
