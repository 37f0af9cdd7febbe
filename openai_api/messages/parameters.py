"""Reads a request's body: parameters that are supported, taken without effect, or refused by name.

A parameter that is not supported is refused if ignoring it would change the text. It is taken if its value asks for
nothing, or if it says something about the request and not about the text.
"""

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from speculation.errors import InvalidRequest

R = TypeVar("R", bound=BaseModel)

# Taken whatever they are: they are about the request, not about the text.
METADATA = (
    *("user", "metadata", "store", "service_tier", "safety_identifier", "parallel_tool_calls"),
    *("prompt_cache_key", "prompt_cache_retention", "cache_prompt", "id_slot", "timings_per_token", "return_progress"),
    *("keep_alive", "num_thread", "num_gpu", "num_batch", "use_mmap", "use_mlock"),  # Ollama's: how a model is run
)
# Taken with these values, which ask for nothing.
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "best_of": (1,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "length_penalty": (1, 1.0),
    "typical_p": (1, 1.0),
    "tfs_z": (1, 1.0),
    "mirostat": (0,),
    "repeat_penalty": (1, 1.0),
    "top_a": (0, 0.0),
    "dry_multiplier": (0, 0.0),
    "xtc_probability": (0, 0.0),
    "skip_special_tokens": (True,),
    "web_search_options": (),
    "audio": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "grammar": ("",),
    "json_schema": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "stop_token_ids": ([],),
    "bad_words": ([],),
}
_TYPE = re.compile(r"\[|^(constrained-)?(str|int)$")
_INSTEAD = {  # parameters of other servers with the name that they have here
    "repeat_penalty": "repetition_penalty",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_completion_tokens",
}


def read_request(schema: type[R], body: bytes) -> R:
    """The request in `body`. Raises InvalidRequest, which names the parameter."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON") from None
    if not isinstance(given, dict):
        raise InvalidRequest("the body is not a JSON object")
    for name in [name for name in given if name not in schema.model_fields]:
        _check_unsupported(schema, name, given.pop(name))
    try:
        return schema.model_validate_json(json.dumps(given))  # from JSON: strict models take lists for tuples then
    except ValidationError as error:
        raise _reported(error) from None


def _check_unsupported(schema: type[BaseModel], name: str, value: Any) -> None:
    """Raise InvalidRequest unless the parameter can be taken without effect."""
    if name in METADATA or value is None or value in WITHOUT_EFFECT.get(name, ()):
        return
    if (instead := _INSTEAD.get(name)) in schema.model_fields:
        raise InvalidRequest(f"{name}: its name is {instead} here", param=name)
    if name in WITHOUT_EFFECT:
        allowed = WITHOUT_EFFECT[name]
        only = f": leave it out, or send {' or '.join(map(json.dumps, allowed[:2]))}" if allowed else ": leave it out"
        raise InvalidRequest(f"{name}: not supported{only}", param=name)
    raise InvalidRequest(f"{name[:80]}: there is no such parameter", param=name[:80])


def _reported(error: ValidationError) -> InvalidRequest:
    """The error of the first parameter that is wrong.

    Where a value may have several types, each of them has an error. The one that got furthest into the value is of the
    type that was meant.
    """
    errors = error.errors(include_url=False, include_input=False)
    found = [(_place(each["loc"]), each["msg"].removeprefix("Value error, ")) for each in errors]
    parameter = found[0][0][:1]
    of_it = [(place, message) for place, message in found if place[:1] == parameter]
    furthest = max((place for place, _ in of_it), key=len)
    message = " or ".join(dict.fromkeys(message for place, message in of_it if place == furthest))
    message = message.replace(" or Input should be ", " or ")
    where = ".".join(map(str, furthest))
    if not where:  # our own checks begin with the name
        where, _, _ = message.partition(":")
        return InvalidRequest(message, param=where if " " not in where else None)
    return InvalidRequest(f"{where}: {message}", param=where)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where an error is, without pydantic's names of the types that the value may have."""
    return tuple(part for part in loc if isinstance(part, int) or not _TYPE.search(part))
