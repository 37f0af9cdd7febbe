"""The tools that an answer may call, as requests name them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.openai_api.messages.objects import Object

MOST_TOOLS = 128  # as many as OpenAI takes
Name = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.:/-]+$",
        max_length=128,
        description="Its name: letters, digits and `_.:/-`, so that each style can write it.",
    ),
]


class FunctionDefinition(Object):
    """A function that may be called."""

    name: Name
    description: Annotated[str | None, Field(description="What it does. Passed on to the chat template.")] = None
    parameters: Annotated[
        dict[str, Any] | None, Field(description="The JSON Schema of its arguments. Passed on to the chat template.")
    ] = None
    strict: Annotated[
        bool | None,
        Field(description="Whether the arguments of calls keep to the schema; they do if a call must come."),
    ] = None


class Tool(Object):
    """A tool: always a function."""

    type: Annotated[Literal["function"], Field(description="Always a function.")]
    function: Annotated[FunctionDefinition, Field(description="The function.")]

    def for_template(self) -> dict[str, Any]:
        """The tool as chat templates get it. Many fail where description or parameters are missing."""
        function, given = self.function, self.function.parameters
        schema = {"type": "object", "properties": {}} if given is None else given
        shown = {"name": function.name, "description": function.description or "", "parameters": schema}
        return {"type": "function", "function": shown}


class FunctionName(Object):
    """A function by its name."""

    name: Name


class NamedTool(Object):
    """A tool by its name."""

    type: Annotated[Literal["function"], Field(description="Always a function.")]
    function: Annotated[FunctionName, Field(description="The function.")]


ToolChoice = Literal["none", "auto", "required"] | NamedTool


def complaint(tools: Sequence[Tool], choice: ToolChoice | None) -> str | None:
    """What is wrong with a choice among tools; None: nothing."""
    names = [tool.function.name for tool in tools]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        return f"tools: {twice} is there twice, give each tool a name of its own"
    if choice in (None, "none", "auto"):
        return None
    if not tools:
        return "tool_choice: a call must come, and there are no tools: give tools, or leave it out"
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        return f"tool_choice: {choice.function.name} is none of the tools, give the name of one"
    return None
