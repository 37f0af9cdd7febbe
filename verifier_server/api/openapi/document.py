"""The OpenAPI document of the verifier."""

from functools import cache

from gateway.openai_api.openapi import schemas as text_schemas
from gateway.openai_api.openapi.parameters import PARAMETERS as OPENAI_PARAMETERS
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi.operation import Json
from specpair.protocol import messages
from verifier_server.api.openapi import schemas
from verifier_server.api.openapi.examples import EXAMPLES
from verifier_server.api.operations import OPERATIONS

TITLE = "specpair verifier"
_DESCRIPTION = """Verifies draft tokens against the target model; only token ids travel. Serves texts to OpenAI's \
clients, too (`/v1`).

Every path works with and without a trailing slash, and HEAD works where GET does. A body may be compressed
(`Content-Encoding: gzip` or `deflate`). An unknown path is a 404 (`not_found`), another method a 405
(`method_not_allowed`, with the header Allow). All errors have one shape, and each has a stable `code`."""

_PARAMETERS: dict[str, Json] = {
    "session_id": {
        "name": "session_id",
        "in": "path",
        "required": True,
        "description": "Id of a session, from the reply to its prefill.",
        "schema": {"type": "string", "pattern": messages.SESSION_ID},
        "example": "demo",
    },
    "X-Session-Id": {
        "name": "X-Session-Id",
        "in": "header",
        "description": "The session's id, for routers that hash on a header. It can replace `session_id` in the "
        "body, and must not contradict it.",
        "schema": {"type": "string", "pattern": messages.SESSION_ID},
    },
    "from": {
        "name": "from",
        "in": "query",
        "description": "Position of the first token to send. Default: the end of the prompt.",
        "schema": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**9},
        "example": 5,
    },
    "below": {
        "name": "below",
        "in": "query",
        "description": "How many token ids, from the first on, the fingerprints cover. Default: all.",
        "schema": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**9},
        "example": 4096,
    },
}


def _refine(found: dict[str, Json]) -> None:
    schemas.refine(found)
    text_schemas.refine(found)


SERVICE = built.Service(
    title=TITLE,
    description=_DESCRIPTION,
    key="The value of VERIFIER_API_KEY, or a key of VERIFIER_KEYS_FILE. Not needed if the verifier has no key.",
    operations=OPERATIONS,
    examples=EXAMPLES,
    parameters={**_PARAMETERS, **OPENAI_PARAMETERS},
    refine=_refine,
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a verifier with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
