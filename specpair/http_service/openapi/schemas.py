"""The OpenAPI document's schemas: those of the message models, and parts of JSON Schema for checks made in code."""

from collections.abc import Iterable

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from specpair.http_service.openapi.operation import Json

PREFIX = "#/components/schemas/"


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
