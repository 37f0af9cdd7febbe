"""What notations read alike: whitespace, literals, names of tools."""

from collections.abc import Callable, Sequence

from gateway.openai_api.tools.notation import Broken, Calls, Reading

Tell = Callable[[str], object]  # takes text that was read

_WHITESPACE = frozenset(" \t\r\n")
_LONGEST_NAME = 256  # characters


def ignored(_: str) -> None:
    """Takes text that nobody wants."""


def blank(tell: Tell = ignored, c: str | None = None) -> Reading[str]:
    """Read whitespace. Returns the first character that is none. `c`: a character that was read already."""
    if c is None:
        c = yield None
    while c in _WHITESPACE:
        tell(c)
        c = yield None
    return c


def literal(text: str) -> Reading[None]:
    """Read this text. Raises Broken if another stands there."""
    for wanted in text:
        if (yield None) != wanted:
            raise Broken


def one_of(texts: Sequence[str], c: str | None = None) -> Reading[tuple[str | None, str]]:
    """Read whitespace and one of these texts. Returns the text, or None and what was read instead.

    The end of the text counts as one of them that was cut: nothing was read instead.
    """
    seen = (yield None) if c is None else c
    last = seen
    while last:
        found = seen.lstrip()
        if found in texts:
            return found, ""
        if found and not any(text.startswith(found) for text in texts):
            return None, seen
        last = yield None
        seen += last
    return None, ""


def tool_name(calls: Calls, stops: str, c: str | None = None) -> Reading[tuple[str, str]]:
    """Read the name of a tool up to one of the characters `stops`, and return both. Raises Broken if there is none.

    `c`: a character that was read already.
    """
    name = ""
    while True:
        if c is None:
            c = yield None
        if c and c in stops and name.strip() in calls.tools:
            return name.strip(), c
        name += c
        begun = name.strip()
        if not c or len(name) > _LONGEST_NAME or not any(tool.startswith(begun) for tool in calls.tools):
            raise Broken
        c = None
