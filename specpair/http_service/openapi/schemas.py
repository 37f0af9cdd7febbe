"""The OpenAPI document's schemas: those of the message models, and parts of JSON Schema for checks made in code."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from specpair.http_service.openapi.operation import Json

PREFIX = "#/components/schemas/"
_VALUES: Json = {"string": "text", "integer": 1, "number": 0.5, "boolean": True, "object": {}}


def schemas(models: Iterable[type[BaseModel]]) -> dict[str, Json]:
    """The schemas of `models` and of all models that they refer to, by name."""
    ordered = sorted(models, key=lambda model: model.__name__)
    _, made = models_json_schema([(model, "validation") for model in ordered], ref_template=PREFIX + "{model}")
    found: dict[str, Json] = made["$defs"]
    for schema in found.values():
        schema.pop("title", None)
        for field in schema.get("properties", {}).values():
            field.pop("title", None)
            if "description" not in field:
                field["description"] = _of_type(field, found)
    return dict(sorted(found.items()))


def example(schema: Json, schemas: Mapping[str, Json]) -> Any:
    """A value that a schema allows, made of the examples of its fields. What has to be there is, and what has one.

    `schemas`: those that it may refer to.
    """
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example(schemas[schema["$ref"].removeprefix(PREFIX)], schemas)
    if forms := schema.get("anyOf") or schema.get("oneOf"):
        return example(forms[0], schemas) if _is_shown(schema, schemas) or {"type": "null"} not in forms else None
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "properties" in schema:
        required, fields = schema.get("required", ()), schema["properties"].items()
        return {name: example(each, schemas) for name, each in fields if name in required or _is_shown(each, schemas)}
    if schema.get("type") == "array":
        return [example(schema["items"], schemas)] if schema.get("items") else []
    return _VALUES.get(schema.get("type", ""))


def _is_shown(field: Json, schemas: Mapping[str, Json]) -> bool:
    """Whether a field or the object in it has an example."""
    forms = [field, *field.get("anyOf", ())]
    return any("examples" in (schemas[each["$ref"].removeprefix(PREFIX)] if "$ref" in each else each) for each in forms)


def _of_type(field: Json, schemas: dict[str, Json]) -> str:
    """The description that the field's type has, as pydantic does not lift it: a value's, or an object's docstring."""
    for alternative in field.get("anyOf", ()):  # the value, or null
        if "description" in alternative:
            return str(alternative.pop("description"))
        if "$ref" in alternative:
            field = alternative
    return str(schemas[field["$ref"].removeprefix(PREFIX)]["description"])


def given(field: str, kind: str, **more: object) -> Json:
    """A schema that requires `field`, with a value of the type `kind` that satisfies `more`."""
    return {"required": [field], "properties": {field: {"type": kind, **more}}}


def when(condition: Json, then: Json, otherwise: Json | None = None) -> Json:
    """A schema that requires `then` where `condition` is satisfied, and `otherwise` where it is not."""
    return {"if": condition, "then": then} | ({} if otherwise is None else {"else": otherwise})


def one_of(field: str, *values: object) -> Json:
    """A schema that requires `field`, with one of `values`."""
    return {"required": [field], "properties": {field: {"enum": [*values]}}}
