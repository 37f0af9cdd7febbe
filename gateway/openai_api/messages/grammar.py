"""The grammar of a text as OpenAI's requests name it, and as those of other servers do."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from gateway.openai_api.messages.objects import Object
from specpair.speculation.sampling.grammar import CheckedSchema, schema_check

FormatType = Annotated[
    Literal["text", "json_object", "json_schema"], Field(description="text, json_object, json_schema.")
]
_OBJECT = {"type": "object"}


class JsonSchemaFormat(Object):
    """A named schema."""

    name: Annotated[str | None, Field(max_length=256, description="Has no effect.")] = None
    description: Annotated[str | None, Field(description="Has no effect.")] = None
    schema_: Annotated[dict[str, Any] | None, schema_check(), Field(alias="schema", description="The JSON Schema.")] = (
        None
    )
    strict: Annotated[bool | None, Field(description="Has no effect: the text is valid all the same.")] = None


class ResponseFormat(Object):
    """What the text is: a free text, any object of JSON, or JSON under a schema."""

    type: FormatType
    json_schema: Annotated[JsonSchemaFormat | None, Field(description="With json_schema: the schema.")] = None
    schema_: Annotated[
        dict[str, Any] | None,
        schema_check(),
        Field(alias="schema", description="The schema, as llama-server takes it."),
    ] = None

    @model_validator(mode="after")
    def _has_a_schema(self) -> "ResponseFormat":
        if self.type == "json_schema" and self._schema is None:
            raise ValueError("there is no schema: give json_schema.schema")
        if self.type == "text" and (self.json_schema is not None or self.schema_ is not None):
            raise ValueError("there is a schema, and the type is text: give json_schema as the type")
        return self

    @property
    def _schema(self) -> dict[str, Any] | None:
        named = None if self.json_schema is None else self.json_schema.schema_
        return self.schema_ if named is None else named

    @property
    def options(self) -> dict[str, Any]:
        """The options of the text."""
        if self.type == "text":
            return {}
        return {"json_schema": _OBJECT if self._schema is None else self._schema}


class StructuredOutputs(Object):
    """One of these, as vLLM names them."""

    json_: Annotated[
        dict[str, Any] | str | None, Field(alias="json", description="A JSON Schema, as an object or as its text.")
    ] = None
    regex: Annotated[str | None, Field(description="A regular expression.")] = None
    choice: Annotated[list[str] | None, Field(min_length=1, description="One of these texts.")] = None
    grammar: Annotated[str | None, Field(description="A grammar in Lark or GBNF.")] = None
    json_object: Annotated[bool | None, Field(description="Any object of JSON.")] = None

    @field_validator("json_")
    @classmethod
    def _read(cls, given: Any) -> Any:
        try:
            schema = json.loads(given) if isinstance(given, str) else given
        except (ValueError, RecursionError):
            raise ValueError("this is not JSON") from None
        return CheckedSchema(schema) if isinstance(schema, dict) else schema

    @property
    def options(self) -> dict[str, Any]:
        """The options of the text."""
        given = {name: getattr(self, name) for name in ("regex", "choice", "grammar")}
        given["json_schema"] = _OBJECT if self.json_object and self.json_ is None else self.json_
        return {name: value for name, value in given.items() if value is not None}
