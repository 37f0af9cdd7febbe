"""Anthropic's requests, as far as they are supported. `fields` says what happens to others."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from gateway.anthropic_api.blocks import Text, TurnMessage
from gateway.anthropic_api.fields import TABLE
from gateway.openai_api.messages.objects import Object, check_type
from gateway.openai_api.messages.requests import Drafting, ModelName, Stops, Streams, text_fields

TEXT_FIELDS = text_fields(without=["max_tokens"])


class _Object(Object):
    table = TABLE


class CustomTool(_Object):
    """A tool that the answer may call."""

    type: Annotated[Literal["custom"] | None, Field(description="Only tools of the caller's.")] = None
    name: Annotated[str, Field(description="Its name.")]
    description: Annotated[str | None, Field(description="What it does.")] = None
    input_schema: Annotated[dict[str, Any], Field(description="The JSON Schema of its arguments.")]
    strict: Annotated[bool | None, Field(description="Whether the arguments always keep to the schema.")] = None

    @model_validator(mode="before")
    @classmethod
    def _is_of_the_caller(cls, given: Any) -> Any:
        return check_type(given, "custom", "leave it out, or give a tool with an input_schema of its own")


class CustomToolChoice(_Object):
    """Whether tools are called, or which one."""

    type: Annotated[
        Literal["auto", "any", "tool", "none"],
        Field(description="any: one must be called; tool: the named one must be called."),
    ]
    name: Annotated[str | None, Field(description="With tool: its name.")] = None
    disable_parallel_tool_use: Annotated[bool | None, Field(description="Whether one at most is called.")] = None

    @model_validator(mode="after")
    def _named(self) -> "CustomToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("name: the type tool has one, and no other type")
        return self


class Thinking(_Object):
    """Whether the model thinks before it answers, where its chat template knows thoughts."""

    type: Annotated[
        Literal["adaptive", "disabled", "enabled"],
        Field(
            description="adaptive: as the model does by itself; the others are `enable_thinking` of the chat template, "
            "where it has such a variable."
        ),
    ]
    budget_tokens: Annotated[
        int | None,
        Field(ge=1, description="With enabled: `thinking_budget` of the chat template, without effect elsewhere."),
    ] = None

    @model_validator(mode="after")
    def _has_a_budget(self) -> "Thinking":
        if self.budget_tokens is not None and self.type != "enabled":
            raise ValueError("budget_tokens: only with the type enabled")
        return self


class OutputFormat(_Object):
    """A text that is JSON under a schema."""

    type: Annotated[Literal["json_schema"], Field(description="Only this.")]
    schema_: Annotated[dict[str, Any], Field(alias="schema", description="The JSON Schema.")]


class OutputConfig(_Object):
    """How the answer is written."""

    effort: Annotated[
        str | None,
        Field(
            max_length=32,
            description="`reasoning_effort`, where the chat template has such a variable; elsewhere only `high`, the "
            "same as none.",
        ),
    ] = None
    format: Annotated[OutputFormat | None, Field(description="What the text is. Default: a free text.")] = None


class _Conversation(_Object):
    """What makes the prompt."""

    model: ModelName = None
    messages: Annotated[
        list[TurnMessage], Field(min_length=1, fail_fast=True, description="The conversation, the oldest first.")
    ]
    system: Annotated[Text | None, Field(description="What comes before all messages.")] = None
    tools: Annotated[
        Annotated[list[CustomTool], Field(fail_fast=True)] | None, Field(description="Tools that may be called.")
    ] = None
    tool_choice: Annotated[CustomToolChoice | None, Field(description="Whether tools are called. Default: auto.")] = (
        None
    )
    thinking: Annotated[Thinking | None, Field(description="Whether the model thinks.")] = None
    output_config: Annotated[OutputConfig | None, Field(description="How the answer is written.")] = None

    @model_validator(mode="after")
    def _can_be_answered(self) -> "_Conversation":
        last = len(self.messages) - 1
        if self.messages[last].role != "assistant":
            return self
        if self.messages[last].text is None:
            raise ValueError(
                f"messages.{last}: the last message is the assistant's, of which only text can be continued: end with "
                "one of the user's"
            )
        form, choice = self.output_config and self.output_config.format, self.tool_choice
        if form is not None or (choice is not None and choice.type in ("any", "tool")):
            raise ValueError(
                f"messages.{last}: the last message is the assistant's, and a text that keeps to a form is not "
                "continued: end with one of the user's"
            )
        return self


class CountRequest(_Conversation):
    """A conversation whose tokens are counted."""


if TYPE_CHECKING:
    _WithOptions = _Conversation
else:
    _WithOptions = create_model("_WithOptions", __base__=_Conversation, **TEXT_FIELDS)


class MessagesRequest(_WithOptions):
    """The answer to a conversation."""

    max_tokens: Annotated[int, Field(ge=1, description="The most tokens of the answer, thoughts included.")]
    stop_sequences: Annotated[Stops | None, Field(description="The text ends before the first of these strings.")] = (
        None
    )
    stream: Streams = None
    speculative: Drafting = None


Conversation = CountRequest | MessagesRequest
