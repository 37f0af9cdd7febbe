"""The messages of a conversation, and the blocks that they consist of, as Anthropic's requests have them."""

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from gateway.anthropic_api.fields import TABLE
from gateway.openai_api.messages.conversation import joined
from gateway.openai_api.messages.objects import Object, by_type


class _Object(Object):
    table = TABLE


class TextBlock(_Object):
    """A block of text."""

    type: Annotated[Literal["text"], Field(description="Only text.")]
    text: Annotated[str, Field(description="The text.")]


Text = Annotated[
    str | Annotated[list[TextBlock], Field(fail_fast=True)], Field(description="A string, or blocks of text.")
]


class ThinkingBlock(_Object):
    """The thoughts before an earlier answer. They go to the chat template with it."""

    type: Annotated[Literal["thinking"], Field(description="What this is.")]
    thinking: Annotated[str, Field(description="The thoughts.")]


class RedactedBlock(_Object):
    """Thoughts that only another service can read. Has no effect."""

    type: Annotated[Literal["redacted_thinking"], Field(description="What this is.")]


class ToolUseBlock(_Object):
    """A call of a tool in an earlier answer."""

    type: Annotated[Literal["tool_use"], Field(description="What this is.")]
    id: Annotated[str, Field(description="What the answer of the tool refers to.")]
    name: Annotated[str, Field(description="The tool's name.")]
    input: Annotated[dict[str, Any], Field(description="The arguments.")]


class ToolResultBlock(_Object):
    """The answer of a tool."""

    type: Annotated[Literal["tool_result"], Field(description="What this is.")]
    tool_use_id: Annotated[str, Field(description="The call's.")]
    content: Annotated[Text | None, Field(description="What the tool says.")] = None


Block = Annotated[
    Annotated[TextBlock, Tag("[text]")]
    | Annotated[ThinkingBlock, Tag("[thinking]")]
    | Annotated[RedactedBlock, Tag("[redacted_thinking]")]
    | Annotated[ToolUseBlock, Tag("[tool_use]")]
    | Annotated[ToolResultBlock, Tag("[tool_result]")],
    by_type("blocks", "text", "thinking", "redacted_thinking", "tool_use", "tool_result"),
]


class TurnMessage(_Object):
    """A message of a conversation."""

    role: Annotated[Literal["user", "assistant", "system"], Field(description="Who says it.")]
    content: Annotated[
        str | Annotated[list[Block], Field(fail_fast=True)], Field(description="A string, or blocks of content.")
    ]

    @property
    def text(self) -> str | None:
        """The text of the content; None: there is something else in it."""
        if isinstance(self.content, str):
            return self.content
        said = [block for block in self.content if isinstance(block, TextBlock)]
        return joined(said) if len(said) == len(self.content) else None
