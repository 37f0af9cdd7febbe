"""The OpenAPI document's schemas: those of the message models, and JSON Schema for the checks made in code."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy

Json = dict[str, Any]

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
    for name in ("PrefillRequest", "GenerateRequest"):
        found[name]["allOf"] = [_ONE_PROMPT, _THRESHOLD, _COMMITTED]
        found[name]["properties"]["max_tokens"]["description"] += _CAPPED
    found["PrefillRequest"]["allOf"].append(_SELF_CONTINUE)
    found["GenerateRequest"]["allOf"].append(_DRAFT_N)
    item = {"allOf": [{"$ref": PREFIX + "VerifyRequest"}, _given("session_id", "string")]}
    found["BatchRequest"]["properties"]["items"]["items"] = item
    return dict(sorted(found.items()))


def _of_type(field: Json, schemas: dict[str, Json]) -> str:
    """The description that the field's type has, as pydantic does not lift it: a value's, or an object's docstring."""
    for alternative in field.get("anyOf", ()):  # the value, or null
        if "description" in alternative:
            return str(alternative.pop("description"))
    return str(schemas[field["$ref"].removeprefix(PREFIX)]["description"])


def _given(field: str, kind: str, **more: object) -> Json:
    """A schema that requires `field`, with a value of the type `kind` that satisfies `more`."""
    return {"required": [field], "properties": {field: {"type": kind, **more}}}


def _if(condition: Json, then: Json, otherwise: Json | None = None) -> Json:
    return {"if": condition, "then": then} | ({} if otherwise is None else {"else": otherwise})


def _is(field: str, *values: object) -> Json:
    """A schema that requires `field`, with one of `values`."""
    return {"required": [field], "properties": {field: {"enum": [*values]}}}


_CAPPED = " If the context is full before `max_tokens`, the text ends there, with the finish reason `length`, too."
_ONE_PROMPT: Json = {"oneOf": [_given("prompt", "string", minLength=1), _given("prompt_ids", "array", minItems=1)]}
_THRESHOLD = _if(
    _is("strategy", str(Strategy.THRESHOLD)),
    _given("threshold", "number"),
    {"properties": {"threshold": {"type": "null"}}},
)
_SELF_CONTINUE = _if(
    _is("strategy", *(str(each) for each in Strategy if each not in DRAFTER_INVARIANT)),
    {"properties": {"self_continue": {"const": False}}},
)
_COMMITTED = _if(_given("committed_ids", "array", minItems=1), _given("seed", "integer"))
_DRAFT_N = _if(_given("draft_n", "integer"), _is("mode", "fused"))
