"""Builds an OpenAPI document from a table of operations: each with its replies, errors, parameters and examples.

FastAPI cannot build it, since the endpoints read and write bodies without FastAPI. Tests compare the documents with the
routes and with the replies of the endpoints."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from specpair.extras import installed_version
from specpair.http_service.openapi.operation import Json, Operation
from specpair.protocol.responses import ErrorResponse

PREFIX = "#/components/schemas/"
_PLAIN: Json = {"string": "text", "integer": 1, "number": 0.5, "boolean": True, "object": {}}
_RETRY_AFTER: Json = {
    "Retry-After": {
        "description": "Seconds to wait before a retry. Absent after a failure.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
_RETRIED = (429, 503)  # statuses of errors that come with Retry-After


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
    """A value that a schema allows, made of the examples of its fields: required fields, and fields with an example.

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
    return _PLAIN.get(schema.get("type", ""))


def _is_shown(field: Json, schemas: Mapping[str, Json]) -> bool:
    """Whether a field, or the object in it, has an example."""
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


def requires(field: str, kind: str, **more: object) -> Json:
    """A schema that requires `field`, with a value of the type `kind` that satisfies `more`."""
    return {"required": [field], "properties": {field: {"type": kind, **more}}}


def when(condition: Json, then: Json, otherwise: Json | None = None) -> Json:
    """A schema that requires `then` where `condition` is satisfied, and `otherwise` where it is not."""
    return {"if": condition, "then": then} | ({} if otherwise is None else {"else": otherwise})


def one_of(field: str, *values: object) -> Json:
    """A schema that requires `field`, with one of `values`."""
    return {"required": [field], "properties": {field: {"enum": [*values]}}}


@dataclass(frozen=True, slots=True)
class DescribedService:
    title: str
    description: str
    key: str  # what the API key is
    operations: tuple[Operation, ...]
    refine: Callable[[dict[str, Json]], object] = lambda schemas: None  # adds to the schemas what is checked in code

    @property
    def paths(self) -> list[str]:
        """The paths of the operations, as Starlette's routes write them."""
        return [each.path for each in self.operations]


def document(service: DescribedService, keyed: bool = False) -> Json:
    """The document of a service. `keyed`: whether it has an API key."""
    return Context().run(_document, service, keyed)  # else examples of errors would name the request that asks for it


def _document(service: DescribedService, keyed: bool) -> Json:
    paths: dict[str, Json] = {}
    models: set[type[BaseModel]] = {ErrorResponse, *(each.form.model for each in service.operations)}
    for each in service.operations:
        models |= {model for model in (each.request, each.response, each.chunk) if model}
        models |= {data for _, data in each.events}
    found = schemas(models)
    service.refine(found)
    for operation in service.operations:
        paths.setdefault(operation.described_path, {})[operation.method.lower()] = _operation(operation, found)
    return {
        "openapi": "3.1.0",
        "info": {"title": service.title, "description": service.description, "version": installed_version()},
        "security": [{"bearer": []}] if keyed else [],
        "paths": paths,
        "components": {
            "schemas": found,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": service.key}},
        },
    }


def _operation(operation: Operation, found: dict[str, Json]) -> Json:
    summary, *more = _sentences(operation.endpoint)
    described: Json = {
        "operationId": operation.endpoint.__name__,
        "tags": [operation.tag],
        "summary": summary.rstrip("."),
    }
    if more:
        described["description"] = " ".join(more)
    if operation.parameters:
        described["parameters"] = [*operation.parameters]
    if operation.request is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.request, operation.examples)}
    if not operation.needs_key:
        described["security"] = []
    described["responses"] = {"200": _success(operation, found)} | _errors(operation)
    if operation.refusal is not None and operation.response is not None:
        when, shown = operation.refusal
        content = _json(operation.response, shown)
        described["responses"]["503"] = {"description": when, "content": content, "headers": _RETRY_AFTER}
    return described


def _json(model: type[BaseModel], examples: Mapping[str, Json]) -> Json:
    return {"application/json": {"schema": _reference(model), "examples": _values(examples)}}


def _values(examples: Mapping[str, Json]) -> Json:
    return {name: {"value": value} for name, value in examples.items()}


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": PREFIX + model.__name__}


def _header(name: str, description: str) -> Json:
    """A header that is always sent, by its name."""
    return {name: {"description": description, "required": True, "schema": {"type": "string"}}}


def _success(operation: Operation, found: dict[str, Json]) -> Json:
    content: Json = {}
    description = "Success."
    if operation.response is not None:
        schema = _reference(operation.response)
        shown = example(schema, found) if operation.example is None else operation.example
        content["application/json"] = {"schema": schema, "example": shown}
    if operation.text:
        content["text/plain"] = {"schema": {"type": "string"}, "example": operation.text}
    if operation.events or operation.chunk is not None:
        description, content["text/event-stream"] = _stream(operation, found)
        if operation.response is not None:
            description = f"JSON; with `stream`, the same as a stream.\n\n{description}"
    success: Json = {"description": description, "content": content}
    if operation.links is not None:
        success["links"] = operation.links
    if any(each["name"] == "X-Session-Id" for each in operation.parameters):
        success["headers"] = _header("X-Session-Id", "The session's id.")
    return success


def stream_example(operation: Operation, found: dict[str, Json]) -> list[tuple[str, str]]:
    """Events of a stream: their names, of which chunks have none, and their data. `found`: the schemas."""
    shown = [*operation.stream]
    if not shown:
        kinds = operation.events or (("", operation.chunk),)
        shown = [(name, example(_reference(kind), found)) for name, kind in kinds if kind is not None]
        shown = [(name, data | {"type": name} if name and "type" in data else data) for name, data in shown]
    written = [(name, json.dumps(data, ensure_ascii=False, separators=(",", ":"))) for name, data in shown]
    return written if operation.chunk is None else [*written, ("", "[DONE]")]


def _stream(operation: Operation, found: dict[str, Json]) -> tuple[str, Json]:
    """The description of a stream and its events."""
    shown = stream_example(operation, found)
    written = "".join((f"event: {name}\n" if name else "") + f"data: {data}\n\n" for name, data in shown)
    name, data = shown[0]
    if operation.chunk is not None:
        last = "the last one is `[DONE]`, or an error"
        events: list[Json] = [{"data": _data(each)} for each in (operation.chunk, ErrorResponse)]
        events.append({"data": {"type": "string", "const": "[DONE]"}})
    else:
        named = " or ".join(f"`{name}`" for name in operation.last)
        last = f"the last one is {named}" if named else "they end with the service"
        events = [{"event": {"const": name}, "data": _data(model)} for name, model in operation.events]
    kinds = [{"type": "object", "required": [*each], "properties": each} for each in events]
    description = f"Server-sent events; {last}. During silence, comments (`:`) are sent.\n\n```\n{written}```"
    first = {"event": name, "data": data} if name else {"data": data}
    return description, {"schema": {"description": "One event.", "oneOf": kinds}, "example": first}


def _data(model: type[BaseModel]) -> Json:
    return {"type": "string", "contentMediaType": "application/json", "contentSchema": _reference(model)}


def _errors(operation: Operation) -> Json:
    """The responses that report errors, by status."""
    by_status: dict[int, dict[str, Json]] = {}  # and then by code, their bodies
    for kind in operation.errors:
        error = kind(" ".join(_sentences(kind)))
        body = operation.form.body(error)
        by_status.setdefault(operation.form.status(error), {})[body["error"]["code"]] = body
    return {str(status): _refusal(operation, status, by_status[status]) for status in sorted(by_status)}


def _refusal(operation: Operation, status: int, bodies: dict[str, Json]) -> Json:
    error_schema = {"properties": {"code": {"enum": [*bodies]}}, "required": [*operation.form.required]}
    one_of_them = {"type": "object", "properties": {"error": error_schema}}
    schema = {"allOf": [_reference(operation.form.model), one_of_them]}
    described: Json = {
        "description": "\n".join(f"* `{code}`: {body['error']['message']}" for code, body in bodies.items()),
        "content": {"application/json": {"schema": schema, "examples": _values(bodies)}},
    }
    if status == 401:
        described["headers"] = _header("WWW-Authenticate", "The scheme, Bearer.")
    if status in _RETRIED:
        described["headers"] = _RETRY_AFTER
    return described


def _sentences(described: object) -> list[str]:
    """The sentences of a docstring."""
    return re.split(r"(?<=\.)\s+", " ".join((inspect.getdoc(described) or "").split()))
