"""The base of the objects that a request consists of: what it does not use is left out or refused by `fields`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator, model_validator
from pydantic_core import PydanticCustomError

from gateway.openai_api.messages.fields import TABLE, Beside, why_refused, without_ignored
from specpair.protocol.terminal_text import one_line

_LONGEST_TYPE = 80  # characters, in an error
REFUSED = "refused_field"  # the type of the error of a field that is refused; its name is in the error's context


class Object(BaseModel):
    """Base of the objects. Validation raises an error of type `REFUSED` for a field that may not be there."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    table: ClassVar[Mapping[str, Beside]] = TABLE  # of the API

    @model_validator(mode="before")
    @classmethod
    def _used(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        names = [field.alias or name for name, field in cls.model_fields.items()]
        beside = cls.table[cls.__name__]
        used, refused = without_ignored(beside, given, names)
        if refused is not None:
            raise PydanticCustomError(REFUSED, "{why}", {"field": refused, "why": why_refused(beside, refused)})
        return used


def check_type(given: Any, wanted: str, instead: str) -> Any:
    """What was given for a tool. Raises an error for one of another type, which its provider would run.

    `instead`: what to do.
    """
    kind = given.get("type") if isinstance(given, dict) else None
    if isinstance(kind, str) and kind != wanted:
        why = f"tools of the type {one_line(kind[:_LONGEST_TYPE])} are not run here: {instead}"
        raise PydanticCustomError(REFUSED, "{why}", {"field": "type", "why": why})
    return given


def by_type(what: str, *types: str, usually: str | None = None) -> Discriminator:
    """Tells objects apart by their `type`, each of which is tagged with its own.

    `what`: what they are, in errors.
    `usually`: the type of one that has none.

    Tags are in brackets, as the names of types are: errors leave these out of a path.
    """

    def tag(given: Any) -> str | None:
        found = given.get("type", usually) if isinstance(given, dict) else getattr(given, "type", None)
        return f"[{found}]" if found in types else None

    message = f"{what} are of the types {', '.join(types)}: leave others out"
    return Discriminator(tag, custom_error_type="unknown_type", custom_error_message=message)
