"""Reads complaints of llguidance, and a JSON Schema: the keyword that one names, the object with most properties."""

import json
import re
from collections.abc import Iterator
from typing import Any

_UNKNOWN = re.compile(r'Unimplemented keys: \["(?P<key>[^"]+)"')
_FORMAT = re.compile(r"Unknown format: (?P<value>.+)")
_EXCERPT = re.compile(r"\s*\d+ \| |<non-verbose/>")
_LONGEST = 300  # characters


def place_of(schema: str, complaint: str) -> str | None:
    """The place of the keyword, as `.properties.name.not`; None: the complaint names none that is there.

    `schema`: JSON.
    """
    key, value = "format", None
    if (found := _UNKNOWN.search(complaint)) is not None:
        key = found["key"]
    elif (found := _FORMAT.search(complaint)) is not None:
        value = found["value"].strip()
    else:
        return None
    return next((place for place in _places(json.loads(schema), key, value, "")), None)


def _places(node: Any, key: str, value: str | None, place: str) -> Iterator[str]:
    if isinstance(node, dict):
        if key in node and (value is None or node[key] == value):
            yield f"{place}.{key}"
        for name, each in node.items():
            yield from _places(each, key, value, f"{place}.{name}")
    elif isinstance(node, list):
        for at, each in enumerate(node):
            yield from _places(each, key, value, f"{place}.{at}")


def widest(node: Any) -> int:
    """The most properties that an object in a schema has."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    properties = node.get("properties") if isinstance(node, dict) else None
    return max([len(properties) if isinstance(properties, dict) else 0, *map(widest, inner)])


def short(complaint: str) -> str:
    """The complaint in one line, without the excerpts of the source that llguidance adds."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip(" ^") and _EXCERPT.match(line) is None]
    of_regex = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    plain = of_regex[-1] if of_regex else " ".join(lines)
    plain = plain.replace("NoExtensionBias", "a $ref refers to itself, without anything in between")
    return plain if len(plain) <= _LONGEST else plain[:_LONGEST] + "…"
