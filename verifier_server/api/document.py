"""The OpenAPI document of the verifier."""

from functools import cache

from gateway import operations as text_operations
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi.document import PREFIX, one_of, requires, when
from specpair.http_service.openapi.operation import Json
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from verifier_server.api.operations import OPERATIONS

_CAPPED = " If the context is full before `max_tokens`, the text ends there, with the finish reason `length`, too."
_PREFIX: Json = requires("prefix", "object")
_ONE_PROMPT: Json = {
    "oneOf": [
        requires("prompt", "string", minLength=1),
        requires("prompt_ids", "array", minItems=1),
        {"allOf": [requires("prompt_ids", "array", maxItems=0), _PREFIX]},
    ]
}
_PREFIX_OF_IDS = when(_PREFIX, requires("prompt_ids", "array"))
_THRESHOLD = when(
    one_of("strategy", str(Strategy.THRESHOLD)),
    requires("threshold", "number"),
    {"properties": {"threshold": {"type": "null"}}},
)
_SELF_CONTINUE = when(
    one_of("strategy", *(str(each) for each in Strategy if each not in DRAFTER_INVARIANT)),
    {"properties": {"self_continue": {"const": False}}},
)
_COMMITTED = when(requires("committed_ids", "array", minItems=1), requires("seed", "integer"))
_DRAFT_N = when(requires("draft_n", "integer"), one_of("mode", "fused"))


TITLE = "specpair verifier"
_DESCRIPTION = """Verifies draft tokens against the target model; only token ids travel. Serves texts to OpenAI's \
clients, too (`/v1`).

Every path works with and without a trailing slash, and HEAD works where GET does. A body may be compressed
(`Content-Encoding: gzip` or `deflate`). An unknown path is a 404 (`not_found`), another method a 405
(`method_not_allowed`, with the header Allow). All errors have one shape, and each has a stable `code`."""


def _refine(found: dict[str, Json]) -> None:
    """Add the checks of the verifier's messages that only code makes."""
    for name in ("PrefillRequest", "GenerateRequest"):
        found[name]["allOf"] = [_ONE_PROMPT, _PREFIX_OF_IDS, _THRESHOLD, _COMMITTED]
        found[name]["properties"]["max_tokens"]["description"] += _CAPPED
    found["PrefillRequest"]["allOf"].append(_SELF_CONTINUE)
    found["GenerateRequest"]["allOf"].append(_DRAFT_N)
    item = {"allOf": [{"$ref": PREFIX + "VerifyRequest"}, requires("session_id", "string")]}
    found["BatchRequest"]["properties"]["items"]["items"] = item
    text_operations.refine(found)


SERVICE = built.DescribedService(
    title=TITLE,
    description=_DESCRIPTION,
    key="The value of VERIFIER_API_KEY, or a key of VERIFIER_KEYS_FILE. Not needed if the verifier has no key.",
    operations=OPERATIONS,
    refine=_refine,
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a verifier with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
