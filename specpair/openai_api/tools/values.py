"""Values that are written as text, as JSON of the types that a tool's schema gives them."""

import json
from collections.abc import Mapping
from typing import Any

from specpair.openai_api.tools.json_text import whole_value

_DEEPEST = 8  # schemas that refer to others
_AS_PYTHON_WRITES = {"True": "true", "False": "false", "None": "null"}
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def types_of(schema: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """JSON Schema's names of the types that a parameter of a tool may have. None: the schema does not say.

    `schema`: that of all parameters.
    """
    properties = schema.get("properties")
    own = properties.get(parameter) if isinstance(properties, Mapping) else None
    return _types(schema.get("additionalProperties") if own is None else own, schema, _DEEPEST)


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or not depth:
        return frozenset()
    found: set[str] = {"null"} if schema.get("nullable") is True else set()
    given = schema.get("type")
    if given is not None:
        found.update(each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str))
    elif isinstance(schema.get("enum"), list) or "const" in schema:
        found.update(kind_of(each) for each in schema.get("enum", [schema.get("const")]))
    elif isinstance(schema.get("$ref"), str):
        found |= _types(_referred(schema["$ref"], root), root, depth - 1)
    else:
        for several in ("anyOf", "oneOf", "allOf"):
            for each in schema[several] if isinstance(schema.get(several), list) else []:
                found |= _types(each, root, depth - 1)
    return frozenset(found)


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
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

    Without types, what can be read as JSON is.
    """
    plain = text.strip()
    found = whole_value(_AS_PYTHON_WRITES.get(plain, plain))
    if found is not None:
        kind = kind_of(json.loads(found))
        if not types or kind in types or (kind in ("integer", "number") and types & {"integer", "number"}):
            return found
    return json.dumps(text, ensure_ascii=False)
