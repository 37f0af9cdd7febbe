"""Tells the route of a path, so that metrics have a value for each route and not one for each path."""

import re
from collections.abc import Iterable

OTHER = "other"  # every path that is no route
_PARAMETER = re.compile(r"\\\{\w+(:path)?\\\}")


class Routes:
    """The routes of an application."""

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
