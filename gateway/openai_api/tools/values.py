"""Values that are written as text, as JSON of the types that a tool's schema gives them."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.openai_api.tools.json_text import whole_value

_DEEPEST = 8  # schemas that refer to others
_AS_PYTHON_WRITES = {"True": "true", "False": "false", "None": "null"}
_NUMBERS = ("integer", "number")
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def types_of(schema: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """JSON Schema's names of the types that a parameter of a tool may have; empty if the schema does not say.

    `schema`: that of all parameters.
    """
    properties = schema.get("properties")
    own = properties.get(parameter) if isinstance(properties, Mapping) else None
    return _types(schema.get("additionalProperties") if own is None else own, schema, _DEEPEST, set())


def _types(schema: Any, root: Mapping[str, Any], depth: int, followed: set[str]) -> frozenset[str]:
    """`followed`: references that were looked at. None is twice, so that the time is in proportion to the schema."""
    if not isinstance(schema, Mapping) or not depth:
        return frozenset()
    found: set[str] = {"null"} if schema.get("nullable") is True else set()
    given = schema.get("type")
    if given is not None:
        found.update(each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str))
    elif isinstance(schema.get("enum"), list) or "const" in schema:
        found.update(kind_of(each) for each in schema.get("enum", [schema.get("const")]))
    elif isinstance(schema.get("$ref"), str):
        if schema["$ref"] not in followed:
            followed.add(schema["$ref"])
            found |= _types(referred(schema["$ref"], root), root, depth - 1, followed)
    else:
        for several in ("anyOf", "oneOf", "allOf"):
            for each in schema[several] if isinstance(schema.get(several), list) else []:
                found |= _types(each, root, depth - 1, followed)
    return frozenset(found)


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The schema in `root` that a reference names; None if there is none."""
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def kind_of(value: Any) -> str:
    """JSON Schema's name of a value's type."""
    return _KINDS.get(type(value), "null")


def json_of(text: str, types: frozenset[str]) -> str:
    """The JSON of a value that is written as text: of one of these types if the text can be read so, else a string.

    Without types, what can be read as JSON is. Strings are written without quotes.
    """
    plain = text.strip()
    found = whole_value(_AS_PYTHON_WRITES.get(plain, plain) if types else plain)
    if found is not None:
        value, written = found
        kind = kind_of(value)
        fits = not types or kind in types or (kind in _NUMBERS and not types.isdisjoint(_NUMBERS))
        if fits and kind != "string":
            return written
    return json.dumps(text, ensure_ascii=False)
