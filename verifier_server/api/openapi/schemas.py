"""The OpenAPI document's schemas: those of the message models, and JSON Schema for the checks made in code."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy

Json = dict[str, Any]

PREFIX = "#/components/schemas/"
_FIELDS = {  # descriptions of the fields of requests
    "session_id": "The session's id, chosen by the client. Default: the server makes one.",
    "prompt": "Text to continue. Either this or `prompt_ids`.",
    "prompt_ids": "The prompt as token ids.",
    "max_tokens": "The most tokens to generate. Default: as many as the context holds.",
    "temperature": "0 takes the most likely token.",
    "top_k": "Keep this many of the most likely tokens; 0 keeps all.",
    "top_p": "Keep the fewest most likely tokens whose probabilities add up to this.",
    "seed": "Determines all random choices. Default: one is drawn and reported.",
    "committed_ids": "Tokens that earlier requests for this text returned, with its prompt, max_tokens and seed. They "
    "are kept, and the reply begins after them.",
    "strategy": "The rule by which draft tokens are accepted.",
    "threshold": "With the strategy threshold: a draft token is accepted if its target probability is above this.",
    "explain": "Whether replies contain the decision on each token.",
    "self_continue": "Self-continuation: whether the verifier decodes on by itself while it waits for drafts.",
    "next_in_ms": "Milliseconds from the reply until the next draft arrives, should this one be rejected.",
    "position": "How many tokens, the prompt's included, the client knows to be committed. The draft starts there.",
    "draft_tokens": "All draft tokens from `position` on; empty: one step of plain decoding.",
    "draft_probs": "With the strategy probabilistic: the distribution that each draft token was drawn from, as "
    "token ids with weights.",
    "items": "Verify requests, each of which names its session.",
    "text": "Text to tokenize.",
    "add_begin": "Whether to put the begin token first.",
    "parse_control": "Whether to parse control tokens in the text.",
    "mode": "target: the target alone; fused: server-side drafting.",
    "draft_n": "With mode fused: draft tokens in a round. Default: chosen for speed.",
    "stream": "Whether to reply with server-sent events instead of one JSON body.",
}


def schemas(models: Iterable[type[BaseModel]]) -> dict[str, Json]:
    """The schemas of `models` and of all models that they refer to, by name."""
    ordered = sorted(models, key=lambda model: model.__name__)
    _, made = models_json_schema([(model, "validation") for model in ordered], ref_template=PREFIX + "{model}")
    found: dict[str, Json] = made["$defs"]
    for name, schema in found.items():
        schema.pop("title", None)
        for field, described in schema.get("properties", {}).items():
            described.pop("title", None)
            if name.endswith("Request"):
                described["description"] = _FIELDS[field]
    for name in ("PrefillRequest", "GenerateRequest"):
        found[name]["allOf"] = [_ONE_PROMPT, _THRESHOLD, _COMMITTED]
    found["PrefillRequest"]["allOf"].append(_SELF_CONTINUE)
    found["GenerateRequest"]["allOf"].append(_DRAFT_N)
    item = {"allOf": [{"$ref": PREFIX + "VerifyRequest"}, _given("session_id", "string")]}
    found["BatchRequest"]["properties"]["items"]["items"] = item
    return dict(sorted(found.items()))


def _given(field: str, kind: str, **more: object) -> Json:
    """A schema that requires `field`, with a value of the type `kind` that satisfies `more`."""
    return {"required": [field], "properties": {field: {"type": kind, **more}}}


def _if(condition: Json, then: Json, otherwise: Json | None = None) -> Json:
    return {"if": condition, "then": then} | ({} if otherwise is None else {"else": otherwise})


def _is(field: str, *values: object) -> Json:
    """A schema that requires `field`, with one of `values`."""
    return {"required": [field], "properties": {field: {"enum": [*values]}}}


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
