"""Gives a description to the fields of the OpenAPI document's schemas that are declared without one of their own.

Most fields are described where they are declared. An object is described by its docstring. The rest are fields whose
name says enough to a reader of the code, but not to a reader of the document.
"""

from typing import Any

Json = dict[str, Any]

# By the field's name, which means the same in all of them. A field that is declared with a description keeps that one.
BY_NAME = {
    "accepted": "Draft tokens that were accepted, at most `drafted`.",
    "acceptance_rate": "`accepted` / `drafted`, 0 to 1; null if nothing was drafted.",
    "begin": "The id of the begin token; null if the vocabulary has none.",
    "context_length": "The most tokens of a session, the prompt's included.",
    "deleted": "Always true; a session that does not exist is the error `unknown_session`.",
    "drafted": "Draft tokens that the target judged.",
    "drafting_ms": "Milliseconds that drafting took, all rounds together.",
    "generated_tokens": "How many `token_ids` there are, 0 or more.",
    "looked_up_accepted": "How many of the draft tokens found by lookup were accepted, at most `looked_up`.",
    "mean_acceptance_length": "Tokens per round: 1 + `accepted` / `rounds`, at least 1; null if there was no round.",
    "mode": "As in the request. target: the target alone; fused: server-side drafting.",
    "model": "Name of the target model.",
    "noise": "Name of the shared noise; both ends must have the same.",
    "prompt_len": "Tokens of the prompt, the begin token included; at least 1.",
    "prompt_tokens": "Tokens of the prompt, the begin token included; at least 1.",
    "results": "A response or an error for each item, in the order of `items`.",
    "self_continue": "Whether the verifier decodes on by itself while it waits for drafts.",
    "session_id": "The session's id, as given in the request or made by the server.",
    "sessions": "The sessions that the caller may see; the list can be empty.",
    "size": "Ids in the whole vocabulary.",
    "status": "ready: all requests are served; loading: the model is loading; failed: it could not be loaded.",
    "temperature": "Temperature, 0 or more; 0 takes the most likely token.",
    "text": "The text of `token_ids`, without the prompt. Bytes that are no UTF-8 become U+FFFD.",
    "token": "Id of the token that was committed.",
    "top_p": "The fewest most likely tokens whose probabilities add up to this are kept, above 0 to 1; 1 keeps all.",
    "type": "invalid_request_error: the request is at fault; server_error: the verifier is.",
}


def describe(schemas: dict[str, Json]) -> None:
    """Add the missing descriptions of fields to `schemas`, which are the document's, by name."""
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if "description" not in field and (found := _described(name, field, schemas)) is not None:
                field["description"] = found


def _described(name: str, field: Json, schemas: dict[str, Json]) -> str | None:
    """The description of a field without one: of its value where that is not null, of its name, or of its object."""
    for alternative in field.get("anyOf", ()):  # pydantic leaves `Annotated[int, Field(description=…)] | None` there
        if "description" in alternative:
            return str(alternative.pop("description"))
    if name in BY_NAME:
        return BY_NAME[name]
    if "$ref" in field:
        return str(schemas[field["$ref"].rpartition("/")[2]]["description"])
    return None
