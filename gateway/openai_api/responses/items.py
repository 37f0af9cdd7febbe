"""The items of a conversation as requests for responses have them."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from gateway.openai_api.messages.objects import Object, by_type
from gateway.openai_api.responses.fields import TABLE


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
    namespace: Annotated[str | None, Field(description="The tool's namespace, if it is in one.")] = None
    arguments: Annotated[str, Field(description="A JSON object, as text.")]


class InputCallOutput(_Part):
    """The answer of a tool."""

    type: Annotated[Literal["function_call_output"], Field(description="What this is.")]
    call_id: Annotated[str, Field(description="The call's.")]
    output: Text


Item = Annotated[
    Annotated[InputMessage, Tag("[message]")]
    | Annotated[InputReasoning, Tag("[reasoning]")]
    | Annotated[InputCall, Tag("[function_call]")]
    | Annotated[InputCallOutput, Tag("[function_call_output]")],
    by_type("items", "message", "reasoning", "function_call", "function_call_output", usually="message"),
]


def shown_name(name: str, namespace: str | None) -> str:
    """A tool's name as the model sees and writes it."""
    return name if namespace is None else f"{namespace}.{name}"
