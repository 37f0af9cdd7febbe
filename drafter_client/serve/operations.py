"""The endpoints of `drafter serve`, and its OpenAPI document."""

from functools import cache

from drafter_client.serve.live import NETWORK, TEXTS, PairEventEndpoints
from drafter_client.serve.messages import Network, PairRound, PairState, TextCounts, TextEnded
from gateway.anthropic_api import schemas as anthropic_schemas
from gateway.anthropic_api.examples import EXAMPLES as ANTHROPIC
from gateway.anthropic_api.operations import message_operations
from gateway.openai_api.openapi.examples import EXAMPLES as OPENAI
from gateway.openai_api.openapi.parameters import PARAMETERS
from gateway.openai_api.operations import openai_operations
from gateway.openai_api.responses.operations import response_operations
from gateway.openai_api.tokens.operations import token_operations
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi import state
from specpair.http_service.openapi.document import Examples
from specpair.http_service.openapi.operation import ALWAYS, Errors, Json, Operation
from specpair.http_service.openapi.state import state_operations
from specpair.protocol import errors

TITLE = "specpair drafter"
_DESCRIPTION = """Serves texts of a target model on another machine to OpenAI's clients; this machine drafts.

Every path works with and without a trailing slash, and HEAD works where GET does. A body may be compressed
(`Content-Encoding: gzip` or `deflate`). An unknown path is a 404 (`not_found`), another method a 405
(`method_not_allowed`, with the header Allow). All errors have one shape, and each has a stable `code`."""

_TEXTS: Errors = (
    *(errors.EngineError, errors.Overloaded, errors.ShuttingDown, errors.VerifierAway, errors.ModelMismatch),
    errors.TargetChanged,
)
STATE = state_operations(ALWAYS)
OPENAI_OPERATIONS = openai_operations(ALWAYS, _TEXTS)
RESPONSE_OPERATIONS = response_operations(ALWAYS, _TEXTS)
MESSAGE_OPERATIONS = message_operations(ALWAYS, _TEXTS)
TOKEN_OPERATIONS = token_operations(
    ALWAYS, (errors.EngineError, errors.Overloaded, errors.VerifierAway, errors.ModelMismatch)
)
LIVE = (
    Operation(
        "GET",
        "/events",
        PairEventEndpoints.watch_pair,
        "operation",
        None,
        (*ALWAYS, errors.InvalidRequest, errors.Overloaded),
        parameters=("of",),
        events=(
            ("state", PairState),
            ("round", PairRound),
            ("counts", TextCounts),
            ("ended", TextEnded),
            ("network", Network),
        ),
        last=(),
    ),
)
_LIVE_EVENTS = (
    (
        "state",
        '{"status":"ready","reason":null,"model":"stdlib-target-q8_0","draft_model":"stdlib-target-q4_0","texts":1,'
        '"waiting":0}',
    ),
    (
        "round",
        '{"text":1,"sent_ms":812.4,"arrived_ms":858.9,"drafting_ms":9.6,"queue_ms":0.1,"forward_ms":41.2,'
        '"draft_tokens":6,"judged":6,"schedule":"overlapped"}',
    ),
    (
        "counts",
        '{"text":1,"at_ms":859.0,"mode":"remote","generated":8,"rounds":1,"drafted":6,"accepted":6}',
    ),
    ("ended", '{"text":1,"finish_reason":"length","why":""}'),
    (
        "network",
        '{"nodes":[{"name":"drafter","kind":"drafter","status":"ready","model":"stdlib-target-q4_0","texts":1,"waiting":0},'
        '{"name":"http://10.0.0.1:8000","kind":"verifier","status":"ready","model":"stdlib-target-q8_0","slots":8,'
        '"texts":3,"waiting":0,"own_texts":1,"tokens_per_second":96.4,"price_per_million_tokens":0.6}],'
        '"links":[{"near":"drafter","far":"http://10.0.0.1:8000","round_trip_ms":0.41,"age_s":1.2}],'
        '"generated_tokens":5200,"price_per_million_tokens":0.6,"cost":0.00312}',
    ),
)

_OF: Json = {
    "name": "of",
    "in": "query",
    "description": "What is told of: texts (the events state, round, counts, ended), or the network (network).",
    "schema": {"type": "string", "enum": [TEXTS, NETWORK], "default": TEXTS},
}
SERVICE = built.Service(
    title=TITLE,
    description=_DESCRIPTION,
    key="A key that the drafter serves. Not needed if it has none.",
    operations=(*OPENAI_OPERATIONS, *RESPONSE_OPERATIONS, *MESSAGE_OPERATIONS, *TOKEN_OPERATIONS, *STATE, *LIVE),
    examples=Examples(
        {**OPENAI.requests, **ANTHROPIC.requests},
        {**state.RESPONSES, **OPENAI.responses, **ANTHROPIC.responses},
        {**OPENAI.events, **ANTHROPIC.events, "/events": _LIVE_EVENTS},
    ),
    parameters={**PARAMETERS, "of": _OF},
    refine=anthropic_schemas.refine,
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a drafter with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
