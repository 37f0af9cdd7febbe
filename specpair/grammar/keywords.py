"""Finds the keyword that a complaint of llguidance names in a JSON Schema, and the parts that take long to compile."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from math import inf
from typing import Any

_UNKNOWN = re.compile(r'Unimplemented keys: \["(?P<key>[^"]+)"')
_FORMAT = re.compile(r"Unknown format: (?P<value>.+)")
_RETRIEVED = re.compile(r"Resource '?(?P<name>.+?)'? is not present in a registry")
_EXCERPT = re.compile(r"\s*\d+ \| |<non-verbose/>")
_LONGEST = 300  # characters
_LARGE = 12  # zeros at the end of a number, at most: how many more there are makes no difference


def keyword_path(schema: str, complaint: str) -> str | None:
    """The path of the keyword, as `.properties.name.not`; None: the complaint names no keyword of the schema.

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


def largest_multiple(node: Any) -> int:
    """The largest `multipleOf` in a schema without its decimal point: 0.25 counts as 25. 0: there is none."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    given = node.get("multipleOf") if isinstance(node, dict) else None
    own = 0
    if given is not None and type(given) in (int, float) and 0 < given < inf:
        _, digits, exponent = Decimal(str(given)).as_tuple()
        own = int("".join(map(str, digits))) * 10 ** min(max(0, int(exponent)), _LARGE)
    return max([own, *map(largest_multiple, inner)])


def short(complaint: str) -> str:
    """The complaint in one line, without the excerpts of the source that llguidance adds."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip(" ^") and _EXCERPT.match(line) is None]
    of_regex = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    plain = of_regex[-1] if of_regex else " ".join(lines)
    if (found := _RETRIEVED.search(plain)) is not None:
        plain = f"$ref {found['name']}: only references within the schema, such as #/$defs/name, are followed"
    plain = plain.replace("NoExtensionBias", "a $ref refers to itself, without anything in between")
    return plain if len(plain) <= _LONGEST else plain[:_LONGEST] + "…"
