"""Takes secrets out of what a report says: a vendor's program may print the command lines of other processes."""

import re
from collections.abc import Callable, Iterable

_FLAG = re.compile(r"(--?[\w-]*(?:key|token|secret|password)(?![\w-])[=\s]+)\S+", re.IGNORECASE)
_VARIABLE = re.compile(r"(\b\w*(?:_KEY|_TOKEN|_SECRET|_PASSWORD)=)\S+")
_HIDDEN = "(hidden)"
_LEAST = 4  # characters: a shorter secret would also be found in numbers and words


def hider(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that replaces these secrets in a text, and the values of flags and variables that name a secret."""
    known = sorted({secret for secret in secrets if len(secret) >= _LEAST}, key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, _HIDDEN)
        return _VARIABLE.sub(rf"\1{_HIDDEN}", _FLAG.sub(rf"\1{_HIDDEN}", text))

    return hide
