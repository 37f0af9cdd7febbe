"""Reads a request's body: the base of its objects. Reports errors as OpenAI's endpoints do: 400 for an invalid request,
always with the `param` at fault.

`fields` drops or refuses the fields that an object does not use."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from gateway.openai_api.messages.fields import TABLE, asks_for_nothing, sorted_out, why_refused
from specpair.http_service.hints import read_as, refused, take_hint
from specpair.protocol.errors import InvalidRequest
from specpair.protocol.messages import many_faults
from specpair.protocol.terminal_text import one_line

_LONGEST_TYPE = 80  # characters, in an error
REFUSED = "refused_field"  # the type of the error of a field that is refused; its name is in the error's context


class Object(BaseModel):
    """Base of the objects. Validation raises an error of type `REFUSED` for a field that may not be there."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _used(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        names = [field.alias or name for name, field in cls.model_fields.items()]
        beside, types = TABLE[cls.__name__], _types_of(cls)
        found = sorted_out(beside, given, names)
        wrong = found.refused
        if found.hints and refused():
            wrong = found.hints[0], why_refused(beside, found.hints[0])
        if wrong is not None:
            raise PydanticCustomError(REFUSED, "{why}", {"field": wrong[0], "why": wrong[1]})
        for name in found.hints:
            take_hint(f"{beside.path}.{name}" if beside.path else name)
        for name, sent in found.sent.items():
            read_as(sent, name)
        return {
            name: _whole(value) if int in types[name] else value
            for name, value in found.used.items()
            if not asks_for_nothing(value) or {Any, ..., type(value)} & types[name]
        }


@lru_cache
def _types_of(cls: type[Object]) -> dict[str, set[Any]]:
    """The types that the fields of an object, and items of lists there, may have; an ellipsis: empty ones, too."""

    def types(annotation: Any) -> set[Any]:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Literal:
            return {*map(type, arguments)}
        return {origin or annotation}.union(*map(types, arguments)) if origin is not dict else {dict}

    found: dict[str, set[Any]] = {}
    for name, field in cls.model_fields.items():
        own = any(isinstance(each, BeforeValidator) for each in field.metadata)  # it reads values of its own
        found[field.alias or name] = types(field.annotation) | ({...} if own or field.is_required() else set())
    return found


def _whole(value: Any) -> Any:
    """The value with whole numbers that were written as 16.0 as such. JSON has one type of numbers."""
    if isinstance(value, list):
        return [_whole(each) for each in value]
    exact = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if exact else value


def check_type(given: Any, wanted: Sequence[str], instead: str) -> Any:
    """Return the tool `given`. Raises an error for another type of tool, which its provider would run.

    `instead`: what to do.
    """
    kind = given.get("type") if isinstance(given, dict) else None
    if isinstance(kind, str) and kind not in wanted:
        why = f"tools of the type {one_line(kind[:_LONGEST_TYPE])} are not run here: {instead}"
        raise PydanticCustomError(REFUSED, "{why}", {"field": "type", "why": why})
    return given


def by_type(
    what: str,
    *types: str,
    usually: Callable[[Mapping[str, Any]], str] | None = None,
    together: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Discriminator:
    """Tells objects apart by their `type`, with which each is tagged.

    `what`: what they are, in errors.
    `usually`: the type of one that has none.
    `together`: types that share a tag, by tag.

    Tags are in brackets, as the names of types are: errors leave these out of a path.
    """
    tags = {each: each for each in types} | {each: tag for tag, several in together.items() for each in several}

    def tag(given: Any) -> str | None:
        found = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
        if found is None and usually is not None and isinstance(given, dict):
            found = usually(given)
        return f"[{tags[found]}]" if isinstance(found, str) and found in tags else None

    message = f"{what} are of the types {', '.join(tags)}: leave others out"
    return Discriminator(tag, custom_error_type="unknown_type", custom_error_message=message)


R = TypeVar("R", bound=BaseModel)

_MOST_DIGITS = 4300  # more take long to read; Python's own limit
_LONGEST_NAME = 80  # characters of a name in an error
TOO_DEEP = "the body is nested too deeply"
_UNICODE = "a string in the body is not Unicode text: it has half of a surrogate pair"
_TYPE = re.compile(r"\[|^(constrained-)?(str|int)$|^[A-Z][A-Za-z]+$")  # names of types, also of our objects


def read_request(schema: type[R], body: bytes) -> R:
    """The request in `body`. Raises InvalidRequest, which names the parameter."""
    given = _object(body)
    try:
        return schema.model_validate_json(json.dumps(given))  # from JSON: strict models take lists for tuples then
    except ValidationError as error:
        raise reported(error) from None
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises InvalidRequest, also where JSON leaves open what the body means."""
    try:
        given = json.loads(body, object_pairs_hook=_unambiguous, parse_constant=_no_number, parse_int=_whole_number)
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not JSON: it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error.msg}, at character {error.pos}") from None
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None
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
    raise InvalidRequest(f"the body is not JSON: JSON has no number {constant}")


def _whole_number(digits: str) -> int:
    count = len(digits.removeprefix("-"))
    if count > _MOST_DIGITS:
        raise InvalidRequest(f"a number has {count} digits, at most {_MOST_DIGITS} are taken: {digits[:20]}...")
    return int(digits)


def shown(name: str) -> str:
    """A name from a request as errors show it: it can be long, and hold any character."""
    return one_line(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "...")


def reported(error: ValidationError) -> InvalidRequest:
    """The error of the first parameter that is wrong.

    Where a value may have several types, each of them has an error. The one that got furthest into the value is of the
    type that was meant.
    """
    if (too_many := many_faults(error)) is not None:
        return too_many
    errors = error.errors(include_url=False, include_input=False)
    if errors[0]["type"] == "json_invalid":  # what Python's reader takes, and pydantic's does not
        return InvalidRequest(TOO_DEEP if "recursion" in errors[0]["msg"] else _UNICODE)
    found = [(_path(each), each["msg"].removeprefix("Value error, ")) for each in errors]
    parameter = found[0][0][:1]
    of_it = [(path, message) for path, message in found if path[:1] == parameter]
    furthest = max((path for path, _ in of_it), key=len)
    message = " or ".join(dict.fromkeys(message for path, message in of_it if path == furthest))
    message = message.replace(" or Input should be ", " or ")
    where = ".".join(shown(str(part)) for part in furthest)
    if not where:  # our own checks begin with the name
        where, _, _ = message.partition(":")
        return InvalidRequest(message, param=where if " " not in where else None)
    return InvalidRequest(f"{where}: {message}", param=where)


def _path(error: ErrorDetails) -> tuple[int | str, ...]:
    """Where an error is, without pydantic's names of the types that the value may have."""
    path = tuple(part for part in error["loc"] if isinstance(part, int) or not _TYPE.search(part))
    return (*path, error["ctx"]["field"]) if error["type"] == REFUSED else path


_PARTS_OF_TEXT = ("text", "input_text", "output_text", "logs")
_NO_TEXT = ("image", "base64", "screenshot", "file", "url", "pdf", "audio")  # in names of types


def hosted_text(answer: Any) -> str:
    """What a tool that a provider ran has answered, as text: JSON, unless it is text or parts of it.

    Raises ValueError for images and files.
    """
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list) and all(
        isinstance(each, dict) and each.get("type") in _PARTS_OF_TEXT for each in answer
    ):
        return "\n".join(str(each.get("text", each.get("logs", ""))) for each in answer)
    return json.dumps(_readable(answer), ensure_ascii=False)


def _readable(value: Any) -> Any:
    """A value of JSON without what only its provider can read."""
    if isinstance(value, list):
        return [_readable(each) for each in value]
    if not isinstance(value, dict):
        return value
    if any(word in str(value.get("type")) for word in _NO_TEXT):
        raise ValueError(f"it holds {shown(str(value['type']))}: the model reads text alone, leave it out")
    return {name: _readable(each) for name, each in value.items() if not name.startswith("encrypted_")}
