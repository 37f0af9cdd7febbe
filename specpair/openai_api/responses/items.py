"""The items of a conversation as requests for responses have them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from specpair.openai_api.messages.objects import Object
from specpair.openai_api.responses.fields import TABLE


class _Part(Object):
    table = TABLE


class InputText(_Part):
    """A part of text."""

    type: Annotated[Literal["input_text", "output_text", "text"], Field(description="Only text.")]
    text: Annotated[str, Field(description="The text.")]


Text = Annotated[
    str | Annotated[list[InputText], Field(fail_fast=True)], Field(description="A string, or parts of text.")
]


class InputMessage(_Part):
    """A message: of the caller, or of an earlier answer."""

    type: Annotated[Literal["message"], Field(description="What this is.")] = "message"
    role: Annotated[
        Literal["user", "assistant", "system", "developer"],
        Field(description="Who says it; `developer` counts as `system`."),
    ]
    content: Text


class InputThoughts(_Part):
    """A part of the thoughts before an earlier answer."""

    type: Annotated[Literal["reasoning_text", "summary_text"], Field(description="What this is.")]
    text: Annotated[str, Field(description="The thoughts.")]


_Thoughts = Annotated[list[InputThoughts], Field(fail_fast=True)]


class InputReasoning(_Part):
    """The thoughts before an earlier answer. They go to the chat template with it."""

    type: Annotated[Literal["reasoning"], Field(description="What this is.")]
    content: Annotated[_Thoughts | None, Field(description="The thoughts.")] = None
    summary: Annotated[_Thoughts | None, Field(description="A summary, which is taken where the content is empty.")] = (
        None
    )


class InputCall(_Part):
    """A call of a tool in an earlier answer."""

    type: Annotated[Literal["function_call"], Field(description="What this is.")]
    call_id: Annotated[str, Field(description="What the answer of the tool refers to.")]
    name: Annotated[str, Field(description="The tool's name.")]
    arguments: Annotated[str, Field(description="A JSON object, as text.")]


class InputCallOutput(_Part):
    """The answer of a tool."""

    type: Annotated[Literal["function_call_output"], Field(description="What this is.")]
    call_id: Annotated[str, Field(description="The call's.")]
    output: Text


_TYPES = ("message", "reasoning", "function_call", "function_call_output")


def _type(given: Any) -> str | None:
    """The tag of an item. In brackets, as the names of types are: errors leave these out of a path."""
    found = given.get("type", "message") if isinstance(given, dict) else getattr(given, "type", None)
    return f"[{found}]" if found in _TYPES else None


Item = Annotated[
    Annotated[InputMessage, Tag("[message]")]
    | Annotated[InputReasoning, Tag("[reasoning]")]
    | Annotated[InputCall, Tag("[function_call]")]
    | Annotated[InputCallOutput, Tag("[function_call_output]")],
    Discriminator(
        _type,
        custom_error_type="item",
        custom_error_message=f"items are of the types {', '.join(_TYPES)}: leave others out",
    ),
]


def joined(text: str | list[InputText]) -> str:
    """The text of a content."""
    return text if isinstance(text, str) else "".join(part.text for part in text)
