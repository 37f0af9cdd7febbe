"""Middleware that gives each request an id, counts it by its route, and writes its access line."""

import logging
import re
import time
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpair.http_service import hints
from specpair.http_service.observability.logs import FIELDS, HEADER, RequestContext, enter, request_id
from specpair.protocol.terminal_text import one_line

OTHER = "other"  # every path that is no route
_PARAMETER = re.compile(r"\\\{\w+(:path)?\\\}")
_log = logging.getLogger("specpair.access")
_POLLED = frozenset(("/health", "/live", "/ready", "/metrics"))  # asked again and again, so they get no access line
_LONGEST_PATH = 200  # characters of a path in an access line


class Routes:
    def __init__(self, templates: Iterable[str]) -> None:
        """`templates`: paths with the names of parameters in braces, such as `/sessions/{session_id}`;
        `{name:path}` may have slashes."""
        self._exact: dict[str, str] = {}
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        for template in templates:
            if "{" in template:
                pattern = _PARAMETER.sub(lambda found: ".+" if found[1] else "[^/]+", re.escape(template))
                self._patterns.append((re.compile(pattern), template.replace(":path}", "}")))
            else:
                self._exact[template] = template

    def of(self, path: str) -> str:
        """The route of `path`, which may end with a slash; `OTHER` if it has none."""
        path = path.removesuffix("/") or "/"
        exact = self._exact.get(path)
        if exact is not None:
            return exact
        return next((template for pattern, template in self._patterns if pattern.fullmatch(path)), OTHER)


class ObservedRequests:
    """Serves requests by another application, and observes them. It belongs outside of all other middleware.

    The reply has the request's id in the header X-Request-Id, and names the request's hints. An access line has no
    query, body or key.
    """

    def __init__(
        self,
        app: ASGIApp,
        count: Callable[[str, int, float, str], object],
        routes: Routes,
        access_log: bool,
        clock: Callable[[], float] = time.perf_counter,
        *,
        strict: bool = False,
    ) -> None:
        """`count(route, status, seconds, key)`: counts a request.
        `access_log`: whether to write access lines.
        `clock`: in seconds.
        `strict`: whether hints are refused.
        """
        self._app, self._count, self._routes = app, count, routes
        self._access_log, self._clock, self._strict = access_log, clock, strict

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock()
        # It stays the current one: what the server logs about a request that failed comes after this call. Each
        # request is served by a task of its own.
        context = RequestContext(request_id(scope["headers"]))
        enter(context)
        found = hints.Hints(self._strict)
        hints.enter(found)
        status = 500  # of a request that failed before it was replied to

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(HEADER, context.request_id.encode()), *found.header()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            seconds = self._clock() - began
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            route = self._routes.of(path)
            self._count(route, status, seconds, context.key)
            if self._access_log and route not in _POLLED:
                _write(scope["method"], path, status, 1e3 * seconds, context.key)


def _write(method: str, path: str, status: int, ms: float, key: str) -> None:
    path = one_line(path[:_LONGEST_PATH])  # it can hold any character
    fields = {"method": method, "path": path, "status": status, "ms": round(ms, 3)} | ({"key": key} if key else {})
    by = f" by {key}" if key else ""
    _log.info("%s %s %d, %.1f ms%s", method, path, status, ms, by, extra={FIELDS: fields})
