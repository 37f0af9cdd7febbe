"""Takes secrets out of what a report says: a vendor's program or library may print command lines and settings."""

import re
from collections.abc import Callable, Iterable

_NAMED = r"(?:key|token|secret|password|passwd|credentials)"
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"',}\]]+)"""
_PATTERNS = (
    re.compile(rf"""(--?[\w-]*{_NAMED}(?![\w-])["']?[=,\s]\s*){_VALUE}""", re.IGNORECASE),  # a flag, also in a list
    re.compile(rf"""(\b\w*_{_NAMED}\b["']?\s*[=:]\s*){_VALUE}""", re.IGNORECASE),  # a variable, also in JSON
    re.compile(r"(\bBearer\s+)\S+", re.IGNORECASE),
    re.compile(r"(://)[^/\s:@]+:[^/\s@]+(?=@)"),
)
_HIDDEN = "(hidden)"
LEAST = 4  # characters: a shorter secret would also be found in numbers and words


def hider(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that replaces these secrets in a text, and the values of flags and variables that name a secret."""
    known = sorted({secret for secret in secrets if len(secret) >= LEAST}, key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, _HIDDEN)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\1{_HIDDEN}", text)
        return text

    return hide
