"""Anthropic's requests, as far as they are supported. `fields` says what happens to others."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, create_model, field_validator, model_validator

from gateway.openai_api.messages.conversation import Arguments, flat_tool, joined
from gateway.openai_api.messages.objects import Object, by_type, check_type, hosted_text
from gateway.openai_api.messages.options import Drafting, Limit, ModelName, Stops, Streams, text_fields
from gateway.openai_api.messages.thinking import ThinkingFields

# Of tools that Anthropic runs, and of its MCP servers.
HOSTED_RESULTS = tuple(
    f"{tool}_tool_result"
    for tool in (
        "web_search",
        "web_fetch",
        "code_execution",
        "bash_code_execution",
        "text_editor_code_execution",
        "mcp",
    )
)


class TextBlock(Object):
    """A block of text."""

    type: Literal["text"] = Field(description="Only text.")
    text: str = Field(description="The text.")


Text = Annotated[
    str | Annotated[list[TextBlock], Field(fail_fast=True)], Field(description="A string, or blocks of text.")
]


class ThinkingBlock(Object):
    """The thoughts before an earlier answer. They go to the chat template with it."""

    type: Literal["thinking"] = Field(description="What this is.")
    thinking: str = Field(description="The thoughts.")


class RedactedBlock(Object):
    """Thoughts that only another service can read. Has no effect."""

    type: Literal["redacted_thinking"] = Field(description="What this is.")


class ToolUseBlock(Object):
    """A call of a tool in an earlier answer, also of one that a provider ran."""

    type: Literal["tool_use", "server_tool_use", "mcp_tool_use"] = Field(description="What this is.")
    id: str = Field(description="What the answer of the tool refers to.")
    name: str = Field(description="The tool's name.")
    input: Arguments = None


class SearchResultBlock(Object):
    """A part of a text that was found."""

    type: Literal["search_result"] = Field(description="What this is.")
    title: str = Field(description="Its title.")
    source: str = Field(description="Where it is from.")
    content: list[TextBlock] = Field(fail_fast=True, description="The part.")

    @property
    def text(self) -> str:
        return "\n".join([self.title, self.source, joined(self.content, "\n")])


class DocumentText(Object):
    """The text of a document."""

    type: Literal["text"] = Field(description="Only text.")
    media_type: Literal["text/plain"] = Field("text/plain", description="Only plain text.")
    data: str = Field(description="The text.")


class DocumentBlock(Object):
    """A document."""

    type: Literal["document"] = Field(description="What this is.")
    source: DocumentText = Field(description="Only a text.")
    title: str | None = Field(None, description="Its title.")
    context: str | None = Field(None, description="What it is about.")

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.title, self.context, self.source.data)))


SAID_BLOCKS = (TextBlock, SearchResultBlock, DocumentBlock)
_Said = (
    Annotated[TextBlock, Tag("[text]")]
    | Annotated[SearchResultBlock, Tag("[search_result]")]
    | Annotated[DocumentBlock, Tag("[document]")]
)
_SAID = ("text", "search_result", "document")
_Answer = Annotated[list[Annotated[_Said, by_type("blocks", *_SAID)]], Field(fail_fast=True)]


class ToolResultBlock(Object):
    """The answer of a tool."""

    type: Literal["tool_result"] = Field(description="What this is.")
    tool_use_id: str = Field(description="The call's.")
    content: str | _Answer | None = Field(None, description="What the tool says: a string, or blocks of text.")
    is_error: bool | None = Field(None, description="Whether the tool failed; shown where it says nothing else.")

    @property
    def text(self) -> str:
        """What the model sees."""
        return joined(self.content, "\n") or ("error" if self.is_error else "")


class HostedResultBlock(Object):
    """The answer of a tool that a provider ran. The model sees its text, or its JSON."""

    type: Literal[HOSTED_RESULTS] = Field(description="What this is.")  # type: ignore[valid-type]
    tool_use_id: str = Field(description="The call's.")
    content: Any = Field(None, description="What the tool says.")

    @property
    def text(self) -> str:
        """What the model sees."""
        return hosted_text(self.content)

    @field_validator("content")
    @classmethod
    def _is_text(cls, given: Any) -> Any:
        hosted_text(given)
        return given


MessageBlock = Annotated[
    _Said
    | Annotated[ThinkingBlock, Tag("[thinking]")]
    | Annotated[RedactedBlock, Tag("[redacted_thinking]")]
    | Annotated[ToolUseBlock, Tag("[use]")]
    | Annotated[ToolResultBlock, Tag("[tool_result]")]
    | Annotated[HostedResultBlock, Tag("[hosted]")],
    by_type(
        *("blocks", *_SAID, "thinking", "redacted_thinking", "tool_result"),
        together={"use": ("tool_use", "server_tool_use", "mcp_tool_use"), "hosted": HOSTED_RESULTS},
    ),
]


class TurnMessage(Object):
    """A message of a conversation."""

    role: Literal["user", "assistant", "system"] = Field(description="Who says it.")
    content: Annotated[
        str | Annotated[list[MessageBlock], Field(fail_fast=True)],
        BeforeValidator(lambda given: "" if given is None else [given] if isinstance(given, dict) else given),
    ] = Field(description="A string, or blocks. Null is empty.")

    @property
    def text(self) -> str | None:
        """The text of the content; None: there is something else in it."""
        if isinstance(self.content, str):
            return self.content
        said = [block for block in self.content if isinstance(block, TextBlock)]
        return joined(said) if len(said) == len(self.content) else None


TEXT_FIELDS = text_fields(without=["max_tokens"])


class CustomTool(Object):
    """A tool that the answer may call."""

    type: Literal["custom"] | None = Field(None, description="Only tools of the caller's.")
    name: str = Field(description="Its name.")
    description: str | None = Field(None, description="What it does.")
    input_schema: dict[str, Any] | None = Field(None, description="The JSON Schema of its arguments.")
    strict: bool | None = Field(None, description="Whether the arguments always keep to the schema.")

    @model_validator(mode="before")
    @classmethod
    def _is_of_the_caller(cls, given: Any) -> Any:
        flat = flat_tool(given)
        if isinstance(flat, dict) and flat.get("type") == "function":
            flat = flat | {"type": "custom"}
        return check_type(flat, ("custom",), "leave it out, or give a tool with an input_schema of its own")


class CustomToolChoice(Object):
    """Whether tools are called, or which one."""

    type: Literal["auto", "any", "tool", "none"] = Field(description="any: one must be called; tool: the named one.")
    name: str | None = Field(None, description="With tool: its name.")
    disable_parallel_tool_use: bool | None = Field(None, description="Whether one at most is called.")

    @model_validator(mode="after")
    def _named(self) -> "CustomToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("name: required with the type tool, refused with others")
        return self


def _choice(given: Any) -> Any:
    """A choice that was sent as a word, or in OpenAI's words."""
    word = given.get("type") if isinstance(given, dict) else given
    if word not in ("auto", "any", "none", "required"):
        return given
    return (given if isinstance(given, dict) else {}) | {"type": "any" if word == "required" else word}


class OutputFormat(Object):
    """A text that is JSON under a schema."""

    type: Literal["json_schema"] = Field(description="Only this.")
    schema_: dict[str, Any] = Field(alias="schema", description="The JSON Schema.")


class OutputConfig(Object):
    """How the answer is written."""

    effort: str | None = Field(
        None,
        max_length=32,
        description="`reasoning_effort`, where the chat template has such a variable.",
    )
    format: OutputFormat | None = Field(None, description="What the text is. Default: a free text.")


class _Conversation(ThinkingFields):
    """What makes the prompt."""

    model: ModelName = None
    messages: list[TurnMessage] = Field(min_length=1, fail_fast=True, description="The conversation, the oldest first.")
    system: Text | None = Field(None, description="What comes before all messages.")
    tools: Annotated[list[CustomTool], Field(fail_fast=True)] | None = Field(None, description="Tools to call.")
    tool_choice: Annotated[CustomToolChoice | None, BeforeValidator(_choice)] = Field(
        None, description="Whether tools are called. Default: auto."
    )
    output_config: OutputConfig | None = Field(None, description="How the answer is written.")

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

    max_tokens: Limit = Field(description="The most tokens of the answer, thoughts included; -1: no limit.")
    stop_sequences: Stops = Field(None, description="The text ends before the first of these strings.")
    stream: Streams = None
    speculative: Drafting = None


Conversation = CountRequest | MessagesRequest
