"""Finds the keyword that a complaint of llguidance names in a JSON Schema, and the parts that take long to compile."""

import json
import re
from decimal import Decimal
from math import inf
from typing import Any

from specpair.grammar.plain_schema import places

_UNKNOWN = re.compile(r"Unimplemented keys: \[(.+)\]")
_REFUSED = r"\1 cannot be kept to while a text is written: leave it out, and check the text"
_OVERLAPPING = re.compile("oneOf constraints are not supported.*")
_TELL_APART = "oneOf: a value may fit two of its choices: give anyOf, or each choice a required constant of its own"
# How a complaint names a keyword, and what stands in the value of the one that is meant.
_COMPLAINTS = (
    r'"(?P<key>[^"]+)".* cannot be kept to',
    r"Expected .* for '(?P<key>\w+)'.*, got (?P<value>.+)",
    r"(?P<key>multipleOf) comes to (?P<value>\d+)",
    r"Invalid (?P<key>type): (?P<value>\S+)",
    r"(?P<key>oneOf): ",
    r"(?P<key>\$ref) (?P<value>\S+): ",
    r"(?P<key>min/max)Properties only",
    r"(?P<key>look-around)",
    r"(?P<key>\$?\w+) must be an? ",
)
_VALUES = {"look-around": "(?"}
_KEYS = {"min/max": ("minProperties", "maxProperties"), "look-around": ("pattern", "patternProperties")}
_RETRIEVED = re.compile(r"Resource '?(?:json-schema:///)?(?P<name>.+?)'? is not present in a registry")
_NOWHERE = re.compile(r"Pointer '(.+)' does not exist")
_EXCERPT = re.compile(r"\s*\d+ \| |<non-verbose/>")
_LONGEST = 300  # characters
_LARGE = 12  # zeros at the end of a number, at most: how many more there are makes no difference


def keyword_path(schema: str, complaint: str) -> str:
    """The JSON pointer to the keyword that a short complaint names, as `#/properties/name/not`. Empty: it names none.

    `schema`: JSON.
    """
    for pattern in _COMPLAINTS:
        if (said := re.search(pattern, complaint)) is not None:
            value = _VALUES.get(said["key"], said.groupdict().get("value", ""))
            keys = _KEYS.get(said["key"], (said["key"],))
            return next((place for key in keys for place, _ in places(json.loads(schema), key, value)), "")
    return _bad_pattern(json.loads(schema))


def _bad_pattern(schema: Any) -> str:
    """The pointer to the first pattern in a schema that is no regular expression; empty: there is none."""
    from llguidance import LLMatcher  # of a request with a grammar, which has imported it

    for key in ("pattern", "patternProperties"):
        for place, found in places(schema, key):
            for pattern in [found] if key == "pattern" else found:
                try:
                    wrong = LLMatcher.validate_grammar(LLMatcher.grammar_from_regex(pattern))
                except Exception:  # of llguidance's own types, which are not public
                    wrong = "it is no text"
                if wrong:
                    return place
    return ""


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
    plain = _NOWHERE.sub(r"$ref #\1: there is nothing in the schema at this place", plain)
    plain = _UNKNOWN.sub(_REFUSED, _OVERLAPPING.sub(_TELL_APART, plain))
    plain = plain.replace("NoExtensionBias", "a $ref refers to itself, without anything in between")
    return plain if len(plain) <= _LONGEST else plain[:_LONGEST] + "…"
