"""Objects of files and requests that refuse keys they do not have, and say which was meant."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from specpair.command_line.given_values import advice

UNKNOWN_KEY = "unknown_key"  # the type of the error, whose context has the `key`


class KnownKeys(BaseModel):
    """A model whose errors name a key that it has not, at whatever depth it stands."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_others(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for key in given:
                if key not in cls.model_fields:
                    found = {"key": key, "shown": repr(key), "advice": advice(str(key), cls.model_fields)}
                    raise PydanticCustomError(UNKNOWN_KEY, "no key {shown}{advice}", found)
        return given
