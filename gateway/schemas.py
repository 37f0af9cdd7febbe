"""JSON Schema for the checks of OpenAI's and Anthropic's requests that are made in code."""

from gateway.openai_api.messages.fields import TABLE
from gateway.openai_api.messages.options import MOST_TEXTS
from specpair.http_service.openapi.operation import Json
from specpair.http_service.openapi.schemas import given, one_of, when

_TRUE: Json = {"const": True}


def refine(found: dict[str, Json]) -> None:
    """Add the checks, and the fields that are taken beside those that are used, to the schemas."""
    _add_fields(found)
    for name in ("ChatRequest", "CompletionRequest"):
        schema = found[name]
        schema["properties"]["best_of"] = {"enum": [None, 1], "description": "Only 1, or the value of `n`."}
        schema.setdefault("allOf", []).append(when(_USAGE, given("stream", "boolean", **_TRUE)))
    found["CompletionRequest"]["allOf"].append(_ECHO)
    prompts = found["CompletionRequest"]["properties"]["prompt"]["anyOf"]
    for several in prompts[1:]:
        several["minItems"] = 1
    prompts[3]["items"]["minItems"] = 1
    for several in (prompts[1], prompts[3]):
        several["maxItems"] = MOST_TEXTS
    found["ChatRequest"]["allOf"].append(
        when(given("top_logprobs", "integer", minimum=1), given("logprobs", "boolean", **_TRUE))
    )
    found["ChatMessage"]["allOf"] = [_CONTENT]
    found["Speculative"]["allOf"] = [
        when(given("draft_n", "integer"), {"properties": {"mode": {"not": {"const": "off"}}}})
    ]


def _add_fields(found: dict[str, Json]) -> None:
    """Add the fields that are taken beside those that are used."""
    for name, beside in TABLE.items():
        schema = found[name]
        properties = schema["properties"]
        for field in beside.ignored:
            properties[field] = {"description": "Taken, without effect."}
        for field, values in beside.only.items():
            said = "Not supported: taken with a value that asks for nothing."
            properties[field] = {"enum": [None, *values], "description": said}
        schema["additionalProperties"] = {"anyOf": [_exactly(value) for value in beside.empty]}


def _exactly(value: object) -> Json:
    """A schema of one value: null, false, or the empty string, list or object."""
    sizes: dict[type, tuple[str, str]] = {
        str: ("string", "maxLength"),
        list: ("array", "maxItems"),
        dict: ("object", "maxProperties"),
    }
    if (size := sizes.get(type(value))) is None:
        return {"const": value}
    return {"type": size[0], size[1]: 0}


_USAGE = {"required": ["stream_options"], "properties": {"stream_options": given("include_usage", "boolean", **_TRUE)}}
_ECHO = when(given("echo", "boolean", **_TRUE), {"properties": {"logprobs": {"enum": [None, False]}}})
_CONTENT = when(
    one_of("role", "assistant"),
    {},
    {"required": ["content"], "properties": {"content": {"type": ["string", "array"]}}},
)
