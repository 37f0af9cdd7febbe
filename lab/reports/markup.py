"""HTML and SVG from Python: all except `Markup` is escaped, so text of models and servers cannot become markup."""

import re
from html import escape

from specpair.protocol.terminal_text import several_lines

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_EMPTY = {"meta", "br", "hr"}  # elements of HTML without an end


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Markup | str | float


def tag(name: str, /, *children: Child, **attributes: Child | None) -> Markup:
    """An element. An underscore in an attribute's name becomes a hyphen, and one at its end is dropped (`class_`);
    attributes of None are left out."""
    told = "".join(
        f' {_attribute(key)}="{escape(_text(value))}"' for key, value in attributes.items() if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Elements and texts one after another."""
    return Markup("".join(each if isinstance(each, Markup) else escape(_text(each)) for each in children))


def _text(value: Child) -> str:
    """Spell out control characters and those that reorder a line: they would hide text."""
    if isinstance(value, str):
        return several_lines(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _attribute(key: str) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{key!r} is no name of an attribute")
    return name
