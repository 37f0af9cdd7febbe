"""The endpoints of `drafter serve`, and its OpenAPI document."""

from functools import cache

from drafter_client.serve.live import NETWORK, TEXTS, PairEventEndpoints
from drafter_client.serve.messages import Network, PairRound, PairState, TextCounts, TextEnded
from gateway.operations import refine, text_operations
from specpair.http_service.observability.health import state_operations
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi.operation import ALWAYS, Errors, Json, Operation, parameter
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
_ENCODING: Errors = (errors.EngineError, errors.Overloaded, errors.VerifierAway, errors.ModelMismatch)
TEXTS_SERVED = text_operations(ALWAYS, _TEXTS, _ENCODING)
STATE = state_operations(ALWAYS)
_OF = parameter(
    "of",
    "query",
    "What is told of: texts (the events state, round, counts, ended), or the network (network).",
    {"type": "string", "enum": [TEXTS, NETWORK], "default": TEXTS},
)
LIVE = (
    Operation(
        "GET",
        "/events",
        PairEventEndpoints.watch_pair,
        "operation",
        None,
        (*ALWAYS, errors.InvalidRequest, errors.Overloaded),
        parameters=(_OF,),
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
SERVICE = built.Service(
    title=TITLE,
    description=_DESCRIPTION,
    key="A key that the drafter serves. Not needed if it has none.",
    operations=(*TEXTS_SERVED, *STATE, *LIVE),
    refine=refine,
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a drafter with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
