"""The rules of custom resources in CEL, `x-kubernetes-validations`: what a schema alone cannot say."""

import copy
import re
from collections.abc import Iterator
from functools import cache
from typing import Any


def broken(schema: dict[str, Any], thing: dict[str, Any]) -> list[str]:
    """The rules of `schema` that an object breaks when it is created: where, and the rule's words."""
    whole = copy.deepcopy(thing)
    _fill_in(schema, whole)
    return list(_broken(schema, whole, thing["kind"]))


def _fill_in(schema: dict[str, Any], value: Any) -> None:
    """Give fields their defaults, as the API server does before it asks the rules."""
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
    for inner, each, _ in _parts(schema, value):
        _fill_in(inner, each)


def _broken(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    from celpy import json_to_cel

    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" not in rule["rule"] and not _program(rule["rule"]).evaluate({"self": json_to_cel(value)}):
            yield f"{path}: {rule.get('message', rule['rule'])}"
    for inner, each, name in _parts(schema, value):
        yield from _broken(inner, each, f"{path}{name}")


def _parts(schema: dict[str, Any], value: Any) -> Iterator[tuple[dict[str, Any], Any, str]]:
    """The parts of a value, each with its schema and where it stands."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield schema.get("items", {}), each, f"[{number}]"
    elif isinstance(value, dict):
        others = schema.get("additionalProperties")
        for name, each in value.items():
            inner = schema.get("properties", {}).get(name, others)
            if isinstance(inner, dict):
                yield inner, each, f".{name}"


@cache
def _program(rule: str) -> Any:
    import celpy
    from celpy.celtypes import ListType, StringType

    # Functions that Kubernetes adds: the first match of an expression, or nothing; the parts between separators.
    def find(text: str, expression: str) -> StringType:
        found = re.search(expression, text)
        return StringType(found[0] if found else "")

    def split(text: str, separator: str) -> ListType:
        return ListType([StringType(part) for part in text.split(separator)])

    environment = celpy.Environment()
    return environment.program(environment.compile(rule), functions={"find": find, "split": split})
