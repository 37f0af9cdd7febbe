"""The schemas of the OpenAPI document: made from the models, with what these check in code written as JSON Schema."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy

Json = dict[str, Any]

PREFIX = "#/components/schemas/"
_FIELDS = {  # of requests
    "session_id": "The session's id, of the client's choice; left out, one is made.",
    "prompt": "Text to be continued. Either this or `prompt_ids`.",
    "prompt_ids": "The same as token ids.",
    "max_tokens": "Tokens to generate at most; left out, as many as the context holds.",
    "temperature": "0 takes the most likely token.",
    "top_k": "Keep so many of the most likely tokens; 0 keeps all.",
    "top_p": "Keep the most likely tokens that have this probability together.",
    "seed": "The text depends on it alone; left out, one is drawn and reported.",
    "committed_ids": "The tokens that earlier requests for this text brought, with its prompt, max_tokens and seed: "
    "they stand, and the reply begins behind them.",
    "strategy": "Which draft tokens are accepted.",
    "threshold": "With the strategy threshold: a draft token is accepted above this probability of the target.",
    "explain": "Replies tell the decision on each token.",
    "self_continue": "Whether the verifier decodes the session by itself while it waits for drafts.",
    "next_in_ms": "Milliseconds from the reply until the next draft arrives, should this one be rejected.",
    "position": "How many tokens, the prompt's included, the client knows to be committed. The draft starts there.",
    "draft_tokens": "The whole draft from `position` on; empty: one step of plain decoding.",
    "draft_probs": "With the strategy probabilistic: what each draft token was drawn from, as token id and weight.",
    "items": "Drafts, each of a session that it names.",
    "text": "Text to be read.",
    "add_begin": "Whether the token that texts begin with comes first.",
    "parse_control": "Whether control tokens that are spelled out become their ids.",
    "mode": "target: by the target alone; fused: drafted on the server, too.",
    "draft_n": "With mode fused: draft tokens a round; left out, as many as pay.",
    "stream": "Server-sent events in place of one reply.",
}


def schemas(models: Iterable[type[BaseModel]]) -> dict[str, Json]:
    """Of `models` and all that they refer to, by name."""
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
    """That a field is there, and not null."""
    return {"required": [field], "properties": {field: {"type": kind, **more}}}


def _if(condition: Json, then: Json, otherwise: Json | None = None) -> Json:
    return {"if": condition, "then": then} | ({} if otherwise is None else {"else": otherwise})


def _is(field: str, *values: object) -> Json:
    """That a field is given, as one of these."""
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
