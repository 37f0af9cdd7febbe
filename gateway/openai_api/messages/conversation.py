"""The messages of a conversation and the tools of its answer, as programs send them and as chat templates get them."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, model_validator

from gateway.openai_api.messages.objects import Object, shown
from gateway.openai_api.tools.free_text import TEXT_ARGUMENT, TextArgument


class TextPart(Object):
    """A part of a message."""

    type: Literal["text"] = Field(description="Only text.")
    text: str = Field(description="The text.")


# `fail_fast`: to name every wrong item of a long list takes seconds.
Content = Annotated[
    str | Annotated[list[TextPart], Field(fail_fast=True)],
    Field(description="A string, or parts of text."),
]


Arguments = Annotated[
    str | dict[str, Any] | list[Any] | None,
    Field(description="A JSON object, or its text. Other text is shown as text, where the chat template takes it."),
]


class Function(Object):
    """A function that was called."""

    name: str = Field(description="Its name.")
    arguments: Arguments = None


class ToolCall(Object):
    """A call of a tool in an earlier message."""

    id: str | None = Field(None, description="What the answer of the tool refers to.")
    type: Literal["function"] | None = Field("function", description="Always a function.")
    function: Function = Field(description="The call.")

    @model_validator(mode="before")
    @classmethod
    def _of_a_free_text(cls, given: Any) -> Any:
        """The call of a tool that takes a free text is one of a function with that argument."""
        called = given.get("custom") if isinstance(given, dict) and given.get("type") == "custom" else None
        if not isinstance(called, dict) or not isinstance(called.get("input"), str):
            return given
        function = {"name": called.get("name"), "arguments": {TEXT_ARGUMENT: called["input"]}}
        return {"function": function} | {name: each for name, each in given.items() if name not in ("type", "custom")}


class ChatMessage(Object):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"] = Field(
        description="Who says it; `developer` counts as `system`."
    )
    content: Content | None = Field(None, description="Null only for an assistant.")
    name: str | None = Field(
        None, description="Passed on to the chat template. Default for the answer of a tool: the name in its call."
    )
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = Field(
        None, description="Passed on to the chat template, unless the list is empty."
    )
    tool_call_id: str | None = Field(None, description="Passed on to the chat template.")
    reasoning_content: str | None = Field(None, description="The thoughts before it. Passed on to the chat template.")
    reasoning: str | None = Field(None, description="Another name of `reasoning_content`, passed on as it is.")
    thinking: str | None = Field(None, description="Another name of `reasoning_content`, passed on as it is.")

    @model_validator(mode="after")
    def _says_something(self) -> "ChatMessage":
        if self.content is None and self.role != "assistant":
            raise ValueError("content: a string or parts of text, missing here")
        return self

    @property
    def text(self) -> str:
        """The text of the content."""
        return joined(self.content)

    def for_template(self) -> dict[str, Any]:
        """The message as the client sent it, without what is ignored or empty. Its content stays null or parts."""
        sent = self.model_dump(exclude_unset=True)
        kept = {name: value for name, value in sent.items() if name == "content" or value not in (None, [])}
        return kept | {"role": "system" if self.role == "developer" else self.role}


class HasText(Protocol):
    """A part of a content."""

    @property
    def text(self) -> str: ...


def joined(content: str | Sequence[HasText] | None, between: str = "") -> str:
    """The text of a content, with `between` its parts."""
    return content if isinstance(content, str) else between.join(part.text for part in content or ())


_PARTS_OF_TEXT = ("text", "input_text", "output_text", "logs")
_NO_TEXT = ("image", "base64", "screenshot", "file", "url", "pdf", "audio")  # in names of types


def hosted_text(answer: Any) -> str:
    """What a tool that a provider ran has answered, as text: JSON, unless it is text or parts of it.

    Raises ValueError for images and files.
    """
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list) and all(
        isinstance(each, dict) and each.get("type") in _PARTS_OF_TEXT for each in answer
    ):
        return "\n".join(str(each.get("text", each.get("logs", ""))) for each in answer)
    return json.dumps(_readable(answer), ensure_ascii=False)


def _readable(value: Any) -> Any:
    """A value of JSON without what only its provider can read."""
    if isinstance(value, list):
        return [_readable(each) for each in value]
    if not isinstance(value, dict):
        return value
    if any(word in str(value.get("type")) for word in _NO_TEXT):
        raise ValueError(f"it holds {shown(str(value['type']))}: the model reads text alone, leave it out")
    return {name: _readable(each) for name, each in value.items() if not name.startswith("encrypted_")}


MOST_TOOLS = 128  # as many as OpenAI takes
Name = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.:/-]+$",
        max_length=128,
        description="Its name: letters, digits and `_.:/-`, so that each style can write it.",
    ),
]


class TextFormat(Object):
    """The form of a free text."""

    type: Literal["text", "grammar"] = Field(description="text: any text.")
    syntax: Literal["lark", "regex"] | None = Field(None, description="That of the grammar.")
    definition: str | None = Field(None, description="The grammar.")

    @model_validator(mode="before")
    @classmethod
    def _of_a_chat(cls, given: Any) -> Any:
        inner = given.get("grammar") if isinstance(given, dict) else None
        return (
            {name: each for name, each in given.items() if name != "grammar"} | inner
            if isinstance(inner, dict)
            else given
        )

    @model_validator(mode="after")
    def _has_a_grammar(self) -> "TextFormat":
        if (self.type == "grammar") != bool(self.syntax and self.definition):
            raise ValueError("syntax: it belongs to the type grammar, with a definition")
        return self


class FunctionDefinition(Object):
    """A tool that may be called: a function, or one that takes a free text."""

    name: Name
    description: str | None = Field(None, description="What it does. Passed on to the chat template.")
    parameters: dict[str, Any] | None = Field(None, description="The JSON Schema of its arguments. Passed on, too.")
    strict: bool | None = Field(None, description="Whether arguments keep to the schema; they do if a call must come.")
    format: TextFormat | None = Field(None, description="Of the free text of a custom tool.")


def _custom_as_function(given: Any) -> Any:
    """A custom tool, or its name, with what it is in `function`."""
    inner = given.get("custom") if isinstance(given, dict) and given.get("type") == "custom" else None
    return {name: each for name, each in given.items() if name != "custom"} | {"function": inner} if inner else given


class Tool(Object):
    """A tool: a function, or a custom one, which takes a free text."""

    type: Literal["function", "custom"] = Field(description="What it is.")
    function: FunctionDefinition = Field(description="The function; of a custom tool in `custom`.")

    @model_validator(mode="before")
    @classmethod
    def _of_a_free_text(cls, given: Any) -> Any:
        return _custom_as_function(given)

    @model_validator(mode="after")
    def _has_one_form(self) -> "Tool":
        given, wrong = self.function, ("parameters", "strict") if self.type == "custom" else ("format",)
        if (name := next((each for each in wrong if getattr(given, each) is not None), None)) is not None:
            raise ValueError(f"function.{name}: not with the type {self.type}, leave it out")
        return self

    @property
    def schema_(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        if self.type == "function":
            return self.function.parameters or {}
        form = self.function.format
        return TextArgument((form and form.syntax) or "", (form and form.definition) or "")

    @property
    def strict(self) -> bool:
        """Whether calls that may come keep to the schema, or to the grammar."""
        form = self.function.format
        return bool(self.function.strict or (form and form.syntax))

    def for_template(self) -> dict[str, Any]:
        """The tool as chat templates get it. Many fail where description or parameters are missing."""
        function, given = self.function, self.schema_ if self.type == "custom" else self.function.parameters
        schema = {"type": "object", "properties": {}} if given is None else given
        shown = {"name": function.name, "description": function.description or "", "parameters": schema}
        return {"type": "function", "function": shown}


class FunctionName(Object):
    """A function by its name."""

    name: Name


class NamedTool(Object):
    """A tool by its name."""

    type: Literal["function", "custom"] = Field(description="What it is.")
    function: FunctionName = Field(description="The function; of a custom tool in `custom`.")

    @model_validator(mode="before")
    @classmethod
    def _of_a_free_text(cls, given: Any) -> Any:
        return _custom_as_function(given)


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
