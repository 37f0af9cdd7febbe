"""Rewrites JSON Schemas into the keywords that llguidance takes. What is valid under them stays the same.

A keyword that asks for nothing is left out: `uniqueItems: false`, an `if` without branches, one about arrays in a
schema of texts. Some get another form: `propertyNames` becomes `patternProperties`, a oneOf whose branches exclude
each other anyOf. llguidance refuses the rest."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations
from typing import Any
from urllib.parse import unquote

# Keywords by the kind of value that they are about; `fraction`: a number that is no integer.
_ABOUT = {
    "array": "items additionalItems prefixItems minItems maxItems uniqueItems contains minContains maxContains "
    "unevaluatedItems",
    "object": "properties patternProperties additionalProperties propertyNames required minProperties maxProperties "
    "unevaluatedProperties dependentRequired dependentSchemas dependencies",
    "string": "minLength maxLength pattern format",
    "integer fraction": "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
}
_KINDS = {"boolean", "null", *" ".join(_ABOUT).split()}
_KIND_OF = {str: "string", bool: "boolean", int: "integer", float: "fraction", dict: "object", list: "array"}
_IN_PLACE = {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef"}
_ASKING = {*" ".join(_ABOUT.values()).split(), *_IN_PLACE, "type", "enum", "const"}
_DEFINITIONS = ("$defs", "definitions")
# Keywords that hold schemas: by name, and one or a list of them.
_NAMED = {"properties", "patternProperties", "dependentSchemas", "dependencies", *_DEFINITIONS}
_INNER = {"additionalItems", "additionalProperties", "contains", "items", "prefixItems", "propertyNames"}
_INNER |= {"unevaluatedItems", "unevaluatedProperties", *_IN_PLACE} - {"$ref", "$dynamicRef", "$recursiveRef"}
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown")
_COUNT = re.compile("(min|max)(Length|Items|Properties|Contains)")
_ADDRESS = re.compile(r"[\w.~:/?@!$&'()*+,;=%\[\]-]+#?")
_LARGEST = 64 * 1024  # characters of schemas that take the place of one
_MOST_BRANCHES = 64  # of a oneOf that are compared
Node = dict[str, Any]


def _asks_nothing(schema: Any) -> bool:
    return schema is True or (isinstance(schema, Mapping) and _ASKING.isdisjoint(schema))


def _no_needs(needs: Mapping[str, Any], node: Node) -> bool:
    there = {*node.get("required", ())}
    return all(there | {k} >= {*v} if isinstance(v, list) else _asks_nothing(v) for k, v in needs.items())


def _without_branch(_: Any, node: Node) -> bool:
    return "if" not in node or all(_asks_nothing(node.get(each, True)) for each in ("then", "else"))


# When a keyword asks for nothing: of its value, and of its schema, whose inner schemas are plain.
_NOTHING: dict[str, Callable[[Any, Node], bool]] = {
    **dict.fromkeys(("$schema", "$dynamicAnchor", "$recursiveAnchor"), lambda *_: True),
    "$id": lambda value, _: not isinstance(value, str) or not _ADDRESS.fullmatch(value),
    "type": lambda value, _: value == "any",
    "format": lambda value, _: value not in FORMATS,
    "pattern": lambda value, _: value in ("", "^", "$", ".*", "^.*", ".*$"),
    "minLength": lambda value, _: value == 0,
    "not": lambda value, _: value is False,
    **dict.fromkeys(("if", "then", "else"), _without_branch),
    "uniqueItems": lambda value, node: value is False or node.get("maxItems", 2) < 2,
    "contains": lambda _, node: node.get("minContains") == 0 and "maxContains" not in node,
    **dict.fromkeys(("minContains", "maxContains"), lambda _, node: "contains" not in node),
    "unevaluatedItems": lambda value, node: _asks_nothing(value) or not isinstance(node.get("items", []), list),
    "unevaluatedProperties": lambda value, node: _asks_nothing(value) or "additionalProperties" in node,
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), _no_needs),
    "minProperties": lambda value, node: value <= len(node.get("required", ())),
    "maxProperties": lambda value, node: (
        node.get("additionalProperties") is False
        and not node.get("patternProperties")
        and value >= len(node.get("properties", ()))
    ),
}


def plain(schema: Any, root: Any = None) -> Any:
    """The schema in plainer keywords. `root`: the schema that it is part of."""
    if not isinstance(schema, Mapping):
        return schema
    root = schema if root is None else root
    given = {key: value for key, value in schema.items() if value is not None or key not in _ASKING - {"const"}}
    node = {key: _changed(key, value, lambda each: plain(each, root)) for key, value in given.items()}
    with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError, re.error):
        return _plainer(dict(node), root)
    return node  # it has a value of a wrong type, of which llguidance tells


def places(schema: Any, key: str, value: str = "") -> Iterator[tuple[str, Any]]:
    """JSON pointers to a keyword that stays when the schema is plain, with its value; those within definitions come
    last.

    `value`: what stands in the value of the keyword, as JSON.
    """

    def within(node: Any, place: str) -> Iterator[tuple[str, Any]]:
        if isinstance(node, list):
            for at, each in enumerate(node):
                yield from within(each, f"{place}/{at}")
        if not isinstance(node, Mapping):
            return
        if key in node and value in json.dumps(node[key]) and key in (plain(node, schema) or node):
            yield f"{place}/{key}", node[key]
        for name, each in sorted(node.items(), key=lambda item: item[0] in _DEFINITIONS):
            if name in _NAMED and isinstance(each, Mapping):
                for own, inner in each.items():
                    yield from within(inner, f"{place}/{name}/{own.replace('~', '~0').replace('/', '~1')}")
            elif name in _INNER:
                yield from within(each, f"{place}/{name}")

    return within(schema, "#")


def _changed(key: str, value: Any, change: Callable[[Any], Any]) -> Any:
    """The value of a keyword, with each schema in it changed."""
    if key in _NAMED and isinstance(value, Mapping):
        return {name: change(each) for name, each in value.items()}
    if key not in _INNER:
        return value
    return [change(each) for each in value] if isinstance(value, list) else change(value)


def _plainer(node: Node, root: Any) -> Any:
    """A schema whose inner schemas are plain."""
    for key in node:
        if _COUNT.fullmatch(key) and node[key] == int(node[key]):
            node[key] = int(node[key])
    if _asks_nothing(denied := node.get("not")):
        return False
    if isinstance(denied, dict) and _ASKING & denied.keys() == {"type"}:
        left = _kinds(node) - _kinds(denied)
        if "integer" in left or "fraction" not in left:
            if not left:
                return False
            left -= {"integer"} if "fraction" in left else set()
            node["type"] = sorted("number" if each == "fraction" else each for each in left)
            del node["not"]
    kinds = _kinds(node)
    for about, keys in _ABOUT.items():
        for key in keys.split() if kinds.isdisjoint(about.split()) else ():
            node.pop(key, None)
    for key, usual in (("unevaluatedItems", "items"), ("unevaluatedProperties", "additionalProperties")):
        if key in node and node.keys().isdisjoint((*_IN_PLACE, usual, "contains", "dependentSchemas")):
            node[usual] = node.pop(key)
    if "propertyNames" in node:
        _give_names(node, root)
    for key, asks_nothing in _NOTHING.items():
        if key in node and asks_nothing(node[key], node):
            del node[key]
    if "contains" in node and (_asks_nothing(node["contains"]) or node["contains"] == node.get("items")):
        del node["contains"]
        node["minItems"] = max(node.pop("minContains", 1), node.get("minItems", 0))
        if (most := node.pop("maxContains", None)) is not None:
            node["maxItems"] = min(most, node.get("maxItems", most))
    branches = node.get("oneOf", ())
    if "anyOf" not in node and len(branches) <= _MOST_BRANCHES:
        found = [_target(each, root) for each in branches]
        if all(_apart(*both) or _apart_by_property(*both, root) for both in combinations(found, 2)):
            return {"anyOf" if key == "oneOf" else key: value for key, value in node.items()}
    return node


def _give_names(node: Node, root: Any) -> None:
    """Replace `propertyNames`, if another keyword can say it.

    A pattern holds for the properties of `properties`, too. So it cannot say what only the others must be.
    """
    names = plain(_target(node["propertyNames"], root), root)
    others, known = node.get("additionalProperties", True), node.get("properties", {})
    rest = True if "additionalProperties" in node else node.get("unevaluatedProperties", True)
    if "patternProperties" in node or names is False or not _asks_nothing(rest):
        return
    asked = {} if names is True else {key: names[key] for key in names.keys() & _ASKING}
    asked = {key: value for key, value in asked.items() if key not in _NOTHING or not _NOTHING[key](value, asked)}
    if "string" in _kinds(asked):
        asked.pop("type", None)
    if asked and asked.keys() <= {"minLength", "maxLength"}:
        asked = {"pattern": f"^(.|\\n){{{asked.get('minLength', 0)},{asked.get('maxLength', '')}}}$"}
    if len(asked) == 1 and (allowed := _values(asked)) is not None:
        if len(allowed) * len(json.dumps(others)) > _LARGEST:
            return
        node["properties"] = {key: known.get(key, others) for key in allowed.values() if isinstance(key, str)}
        node["additionalProperties"] = False
    elif asked.keys() == {"pattern"}:
        if any("\n" in key for key in known):  # programs differ in where its line ends
            return
        kept = {key: value for key, value in known.items() if re.search(asked["pattern"], key)}
        if others is not False and kept and not _asks_nothing(others):
            return
        node |= {"additionalProperties": False} | ({"properties": kept} if known else {})
        if others is not False:
            node["patternProperties"] = {asked["pattern"]: others}
    elif asked:
        return
    del node["propertyNames"]


def _target(schema: Any, root: Any) -> Any:
    """The schema that a schema refers to; if it does not, itself."""
    reference = schema.get("$ref", "") if isinstance(schema, Mapping) else ""
    if not reference.startswith("#/") or _ASKING & schema.keys() != {"$ref"}:
        return schema
    for part in reference[2:].split("/"):
        root = root[unquote(part).replace("~1", "/").replace("~0", "~")]
    return root


def _values(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The only values that `enum` or `const` allow, by their JSON; None: there are others, or objects and arrays."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is None or any(isinstance(each, dict | list) for each in values):
        return None
    whole = (int(each) if isinstance(each, float) and each.is_integer() else each for each in values)
    return {json.dumps(each): each for each in whole}


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """The kinds of values that a schema allows, as far as `type`, `enum` and `const` tell."""
    if schema.get("type", "any") != "any":
        given = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {*given, *(("integer", "fraction") if "number" in given else ())} - {"number"}
    values = _values(schema)
    return _KINDS if values is None else {_KIND_OF.get(type(each), "null") for each in values.values()}


def _apart(one: Any, other: Any) -> bool:
    """Whether no value is valid under both schemas, as far as `type`, `enum` and `const` tell."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one is False or other is False
    some, others = _values(one), _values(other)
    return _kinds(one).isdisjoint(_kinds(other)) or (
        some is not None and others is not None and some.keys().isdisjoint(others)
    )


def _apart_by_property(one: Any, other: Any, root: Any) -> bool:
    """Whether two schemas of objects require a property whose values tell them apart."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping) or _kinds(one) | _kinds(other) != {"object"}:
        return False
    own, its = one.get("properties", {}), other.get("properties", {})
    both = {*one.get("required", ())} & {*other.get("required", ())} & own.keys() & its.keys()
    return any(_apart(_target(own[key], root), _target(its[key], root)) for key in both)
