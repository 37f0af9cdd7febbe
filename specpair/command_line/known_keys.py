"""Objects of files and requests that refuse keys they do not have, and say which was meant."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from specpair.command_line.suggestion import advice


class KnownKeys(BaseModel):
    """A model whose errors name a key that it has not, at whatever depth it stands."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_others(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for key in given:
                if key not in cls.model_fields:
                    raise ValueError(f"no key {key!r}{advice(str(key), cls.model_fields)}")
        return given
