"""JSON Schema for the checks of OpenAI's requests that are made in code."""

from http_service.openapi.operation import Json
from http_service.openapi.schemas import given, one_of, when
from openai_api.messages.parameters import METADATA, WITHOUT_EFFECT
from openai_api.messages.requests import MOST_TEXTS

_NULL: Json = {"type": "null"}
_TRUE: Json = {"const": True}


def refine(found: dict[str, Json]) -> None:
    """Add the checks, and the parameters that are taken without effect, to the schemas."""
    for name in ("ChatRequest", "CompletionRequest"):
        schema = found[name]
        for parameter in METADATA:
            schema["properties"][parameter] = {"description": "Taken, without effect."}
        for parameter, values in WITHOUT_EFFECT.items():
            said = "Not supported: taken with a value that asks for nothing."
            schema["properties"][parameter] = {"enum": [None, *values], "description": said}
        schema["additionalProperties"] = _NULL
        schema["allOf"] = [when(given("stream_options", "object"), given("stream", "boolean", **_TRUE))]
    found["CompletionRequest"]["allOf"].append(_ECHO)
    prompts = found["CompletionRequest"]["properties"]["prompt"]["anyOf"]
    for several in prompts[1:]:
        several["minItems"] = 1
    prompts[3]["items"]["minItems"] = 1
    for several in (prompts[1], prompts[3]):
        several["maxItems"] = MOST_TEXTS
    found["ChatRequest"]["allOf"].append(when(given("top_logprobs", "integer"), given("logprobs", "boolean", **_TRUE)))
    found["Message"]["allOf"] = [_CONTENT]


_ECHO = when(given("echo", "boolean", **_TRUE), {"properties": {"logprobs": _NULL}})
_CONTENT = when(
    {"allOf": [one_of("role", "assistant"), given("tool_calls", "array", minItems=1)]},
    {},
    {"required": ["content"], "properties": {"content": {"type": ["string", "array"]}}},
)
