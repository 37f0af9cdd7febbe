"""Reads complaints of llguidance, and a JSON Schema: the keyword that one names, and what takes long to compile."""

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from math import gcd, inf, lcm
from typing import Any

_UNKNOWN = re.compile(r'Unimplemented keys: \["(?P<key>[^"]+)"')
_FORMAT = re.compile(r"Unknown format: (?P<value>.+)")
_RETRIEVED = re.compile(r"Resource '?(?P<name>.+?)'? is not present in a registry")
_EXCERPT = re.compile(r"\s*\d+ \| |<non-verbose/>")
_LONGEST = 300  # characters
_DATA = frozenset({"const", "enum", "default", "examples"})  # keywords whose values are no schemas
_LARGE = 10**12  # a multiple that need not be known exactly
_MOST_STEPS = 20_000  # subschemas in which multiples are looked for


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


def largest_multiple(schema: Any) -> int:
    """The largest number, its decimal point left away, of which the numbers at a place have to be multiples: the least
    common multiple of each `multipleOf` there, in `allOf`, behind `$ref`, and of one choice of each `anyOf` and
    `oneOf`. 0 without any."""
    multiples = _Multiples(schema)
    return max((_digits(multiples.of(node, Fraction(0))) for node in _subschemas(schema)), default=0)


class _Multiples:
    def __init__(self, schema: Any) -> None:
        self._schema, self._steps = schema, 0

    def of(self, node: Any, common: Fraction, *, chosen: bool = False) -> Fraction:
        """The least common multiple of `common` (0: none) and those at a place. `chosen`: without further choices."""
        todo, seen, choices = [node], set[int](), list[list[Any]]()
        while todo and self._steps < _MOST_STEPS:
            each = todo.pop()
            if not isinstance(each, dict) or id(each) in seen:
                continue
            seen.add(id(each))
            self._steps += 1
            common = _common(common, each.get("multipleOf"))
            todo += _list(each, "allOf")
            todo.append(_referred(self._schema, each.get("$ref")))
            choices += [_list(each, "anyOf"), _list(each, "oneOf")]
        for some in () if chosen else choices:
            common = max((self.of(one, common, chosen=True) for one in some), key=_digits, default=common)
        return common


def _list(node: dict[str, Any], key: str) -> list[Any]:
    found = node.get(key)
    return found if isinstance(found, list) else []


def _subschemas(node: Any) -> Iterator[dict[str, Any]]:
    """Those with a keyword that matters for `largest_multiple`."""
    if isinstance(node, list):
        for each in node:
            yield from _subschemas(each)
    elif isinstance(node, dict):
        if not node.keys().isdisjoint(("multipleOf", "allOf", "anyOf", "oneOf")):
            yield node
        for name, each in node.items():
            if name not in _DATA:
                yield from _subschemas(each)


def _common(first: Fraction, given: Any) -> Fraction:
    """The least common multiple of a number (0: none) and the value of `multipleOf`."""
    if type(given) not in (int, float) or not 0 < given < inf or first >= _LARGE:
        return first
    second = Fraction(str(given))
    if not first:
        return second
    return Fraction(lcm(first.numerator, second.numerator), gcd(first.denominator, second.denominator))


def _digits(number: Fraction) -> int:
    while number.denominator > 1 and number < _LARGE:
        number *= 10
    return int(number)


def _referred(schema: Any, reference: Any) -> Any:
    """What a `$ref` within a schema refers to; None: nothing that is found."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node = schema
    for part in reference[1:].split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node


def short(complaint: str) -> str:
    """The complaint in one line, without the excerpts of the source that llguidance adds."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip(" ^") and _EXCERPT.match(line) is None]
    of_regex = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    plain = of_regex[-1] if of_regex else " ".join(lines)
    if (found := _RETRIEVED.search(plain)) is not None:
        plain = f"$ref {found['name']}: only references within the schema, such as #/$defs/name, are followed"
    plain = plain.replace("NoExtensionBias", "a $ref refers to itself, without anything in between")
    return plain if len(plain) <= _LONGEST else plain[:_LONGEST] + "…"
