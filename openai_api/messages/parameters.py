"""Reads a request's body: parameters that are supported, taken without effect, or refused by name.

A parameter that is not supported is refused if ignoring it would change the text. It is taken if its value asks for
nothing, or if it says something about the request and not about the text.
"""

import json
import re
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from speculation.errors import InvalidRequest
from speculation.terminal_text import one_line

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
    "length_penalty": (1,),
    "typical_p": (1,),
    "tfs_z": (1,),
    "mirostat": (0,),
    "repeat_penalty": (1,),
    "top_a": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
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
_MOST_DIGITS = 4300  # more take long to read; Python's own limit
_LONGEST_NAME = 80  # characters of a name in an error
_TOO_DEEP = "the body is nested too deeply"
_UNICODE = "a string in the body is not Unicode text: it has half of a surrogate pair"
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
    given = _object(body)
    for name in [name for name in given if name not in schema.model_fields]:
        _check_unsupported(schema, name, given.pop(name))
    try:
        return schema.model_validate_json(json.dumps(given))  # from JSON: strict models take lists for tuples then
    except ValidationError as error:
        raise _reported(error) from None
    except RecursionError:
        raise InvalidRequest(_TOO_DEEP) from None


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises InvalidRequest, also where JSON leaves open what the body means."""
    try:
        given = json.loads(body, object_pairs_hook=_unambiguous, parse_constant=_no_number, parse_int=_whole_number)
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not JSON: it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error.msg}, at character {error.pos}") from None
    except RecursionError:
        raise InvalidRequest(_TOO_DEEP) from None
    if not isinstance(given, dict):
        raise InvalidRequest("the body is not a JSON object")
    return given


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        name = shown(next(name for name, _ in pairs if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
        raise InvalidRequest(f"{name}: it is given twice, give it once", param=name)
    return made


def _no_number(constant: str) -> NoReturn:
    raise InvalidRequest(f"the body is not JSON: {constant} is no number there")


def _whole_number(digits: str) -> int:
    count = len(digits.removeprefix("-"))
    if count > _MOST_DIGITS:
        raise InvalidRequest(f"a number has {count} digits, at most {_MOST_DIGITS} are taken: {digits[:20]}...")
    return int(digits)


def shown(name: str) -> str:
    """A name from a request as errors show it: it can be long, and hold any character."""
    return one_line(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "...")


def _check_unsupported(schema: type[BaseModel], name: str, value: Any) -> None:
    """Raise InvalidRequest unless the parameter can be taken without effect."""
    if name in METADATA or value is None or any(_same(value, each) for each in WITHOUT_EFFECT.get(name, ())):
        return
    if (instead := _INSTEAD.get(name)) in schema.model_fields:
        raise InvalidRequest(f"{name}: its name is {instead} here", param=name)
    if name in WITHOUT_EFFECT:
        allowed = WITHOUT_EFFECT[name]
        only = f": leave it out, or send {' or '.join(map(json.dumps, allowed[:2]))}" if allowed else ": leave it out"
        raise InvalidRequest(f"{name}: not supported{only}", param=name)
    raise InvalidRequest(f"{shown(name)}: there is no such parameter", param=shown(name))


def _same(value: Any, other: Any) -> bool:
    """Whether two values of JSON are the same. Python takes True for 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _reported(error: ValidationError) -> InvalidRequest:
    """The error of the first parameter that is wrong.

    Where a value may have several types, each of them has an error. The one that got furthest into the value is of the
    type that was meant.
    """
    errors = error.errors(include_url=False, include_input=False)
    if errors[0]["type"] == "json_invalid":  # what Python's reader takes, and pydantic's does not
        return InvalidRequest(_TOO_DEEP if "recursion" in errors[0]["msg"] else _UNICODE)
    found = [(_place(each["loc"]), each["msg"].removeprefix("Value error, ")) for each in errors]
    parameter = found[0][0][:1]
    of_it = [(place, message) for place, message in found if place[:1] == parameter]
    furthest = max((place for place, _ in of_it), key=len)
    message = " or ".join(dict.fromkeys(message for place, message in of_it if place == furthest))
    message = message.replace(" or Input should be ", " or ")
    where = ".".join(shown(str(part)) for part in furthest)
    if not where:  # our own checks begin with the name
        where, _, _ = message.partition(":")
        return InvalidRequest(message, param=where if " " not in where else None)
    return InvalidRequest(f"{where}: {message}", param=where)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where an error is, without pydantic's names of the types that the value may have."""
    return tuple(part for part in loc if isinstance(part, int) or not _TYPE.search(part))
