"""JSON Schema for the checks of the verifier's own messages that are made in code."""

from specpair.http_service.openapi.operation import Json
from specpair.http_service.openapi.schemas import PREFIX, given, one_of, when
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy


def refine(found: dict[str, Json]) -> None:
    """Add the checks to the schemas."""
    for name in ("PrefillRequest", "GenerateRequest"):
        found[name]["allOf"] = [_ONE_PROMPT, _THRESHOLD, _COMMITTED]
        found[name]["properties"]["max_tokens"]["description"] += _CAPPED
    found["PrefillRequest"]["allOf"].append(_SELF_CONTINUE)
    found["GenerateRequest"]["allOf"].append(_DRAFT_N)
    item = {"allOf": [{"$ref": PREFIX + "VerifyRequest"}, given("session_id", "string")]}
    found["BatchRequest"]["properties"]["items"]["items"] = item


_CAPPED = " If the context is full before `max_tokens`, the text ends there, with the finish reason `length`, too."
_ONE_PROMPT: Json = {"oneOf": [given("prompt", "string", minLength=1), given("prompt_ids", "array", minItems=1)]}
_THRESHOLD = when(
    one_of("strategy", str(Strategy.THRESHOLD)),
    given("threshold", "number"),
    {"properties": {"threshold": {"type": "null"}}},
)
_SELF_CONTINUE = when(
    one_of("strategy", *(str(each) for each in Strategy if each not in DRAFTER_INVARIANT)),
    {"properties": {"self_continue": {"const": False}}},
)
_COMMITTED = when(given("committed_ids", "array", minItems=1), given("seed", "integer"))
_DRAFT_N = when(given("draft_n", "integer"), one_of("mode", "fused"))
