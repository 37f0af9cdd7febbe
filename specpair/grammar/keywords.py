"""Looks through a JSON Schema: for the keyword that a complaint names, and for the object with the most properties."""

import json
import re
from collections.abc import Iterator
from typing import Any

_UNKNOWN = re.compile(r'Unimplemented keys: \["(?P<key>[^"]+)"')
_FORMAT = re.compile(r"Unknown format: (?P<value>.+)")


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
