"""The messages of a conversation and the tools of its answer, as programs send them and as chat templates get them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from gateway.openai_api.messages.objects import Object, check_type
from gateway.openai_api.tools.free_text import TEXT_ARGUMENT, TextArgument


def text_part(given: Any) -> Any:
    """A part of a content as programs send it: a string, a refusal, or of the Responses' types."""
    if isinstance(given, str):
        return {"type": "text", "text": given}
    if not isinstance(given, dict):
        return given
    if given.get("type") == "refusal" and isinstance(given.get("refusal"), str):
        return {"text": given["refusal"]} | {name: each for name, each in given.items() if name != "refusal"}
    return given


class TextPart(Object):
    """A part of a message."""

    type: Literal["text"] = Field("text", description="Only text; also as input_text, output_text and refusal.")
    text: str = Field(description="The text.")

    @model_validator(mode="before")
    @classmethod
    def _of_programs(cls, given: Any) -> Any:
        part = text_part(given)
        also = isinstance(part, dict) and part.get("type", "text") in ("text", "input_text", "output_text", "refusal")
        return part | {"type": "text"} if also else part


# `fail_fast`: to name every wrong item of a long list takes seconds.
Content = Annotated[
    str | Annotated[list[TextPart], Field(fail_fast=True)],
    BeforeValidator(lambda given: [given] if isinstance(given, dict) else given),
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
    content: Content | None = Field(None, description="Missing only for an assistant. Null is empty.")
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

    @model_validator(mode="before")
    @classmethod
    def _with_refusal(cls, given: Any) -> Any:
        """An assistant's refusal is its content."""
        if isinstance(given, dict) and given.get("refusal") and not given.get("content"):
            return given | {"content": given["refusal"], "refusal": None}
        return given

    @model_validator(mode="after")
    def _says_something(self) -> "ChatMessage":
        if "content" not in self.model_fields_set and self.role != "assistant":
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
        if self.content is None and self.role != "assistant":
            kept["content"] = ""
        return kept | {"role": "system" if self.role == "developer" else self.role}


class HasText(Protocol):
    """A part of a content."""

    @property
    def text(self) -> str: ...


def joined(content: str | Sequence[HasText] | None, between: str = "") -> str:
    """The text of a content, with `between` its parts."""
    return content if isinstance(content, str) else between.join(part.text for part in content or ())


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


def _with_function(given: Any) -> Any:
    """A tool, or its name, in which what it is stands in `function`, where it stood in `custom`."""
    if not isinstance(given, dict) or not isinstance(custom := given.get("custom"), dict):
        return given
    return {name: each for name, each in given.items() if name != "custom"} | {"function": custom}


def flat_tool(given: Any) -> Any:
    """A tool, or its name, as in the Responses: what is in `function` in chats stands beside its type."""
    given = _with_function(given)
    if not isinstance(given, dict) or not isinstance(function := given.get("function"), dict):
        return given
    return {name: each for name, each in given.items() if name != "function"} | function


def _nested(given: Any) -> Any:
    """A tool, or its name, as in chats."""
    given = _with_function(given)
    if not isinstance(given, dict) or not isinstance(function := given.get("function", given), dict):
        return given
    beside = [name for name in given if name in ("type", "function") or (function is not given and name != "strict")]
    inside = {name: each for name, each in given.items() if name not in beside}
    if "name" not in function:
        return given
    return {name: given[name] for name in beside} | {"function": inside | (function if function is not given else {})}


class Tool(Object):
    """A tool: a function, or a custom one, which takes a free text."""

    type: Literal["function", "custom"] = Field("function", description="custom: it takes a free text.")
    function: FunctionDefinition = Field(description="The function; of a custom tool in `custom`.")

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

    @model_validator(mode="before")
    @classmethod
    def _of_programs(cls, given: Any) -> Any:
        return _nested(given)

    def for_template(self) -> dict[str, Any]:
        """The tool as chat templates get it. Many fail where description or parameters are missing."""
        function, given = self.function, self.schema_ if self.type == "custom" else self.function.parameters
        schema = {"type": "object", "properties": {}} if given is None else given
        shown = {"name": function.name, "description": function.description or "", "parameters": schema}
        return {"type": "function", "function": shown}


def _distinct(tools: list[Tool]) -> list[Tool]:
    """The tools without repetitions. Raises ValueError for two tools of one name."""
    found: dict[str, Tool] = {}
    for tool in tools:
        name = tool.function.name
        if found.setdefault(name, tool).for_template() != tool.for_template():
            raise ValueError(f"{name} is there twice, and not the same, give each tool a name of its own")
    return [*found.values()]


Tools = Annotated[list[Tool], Field(fail_fast=True), AfterValidator(_distinct)]


class FunctionName(Object):
    """A function by its name."""

    name: Name


class NamedTool(Object):
    """A tool by its name."""

    type: Literal["function", "custom"] = Field("function", description="What it is.")
    function: FunctionName = Field(description="The function; of a custom tool in `custom`.")

    @model_validator(mode="before")
    @classmethod
    def _of_programs(cls, given: Any) -> Any:
        instead = "leave it out, or give a function that your program runs"
        return _nested(check_type(given, ("function", "custom"), instead))

    @property
    def names(self) -> list[str]:
        """The names of the tools that may be called."""
        return [self.function.name]

    def flat(self) -> dict[str, Any]:
        """The choice in the form of the Responses."""
        return {"type": self.type, "name": self.function.name}


class AllowedTools(Object):
    """The tools that may be called. The model sees all of them."""

    type: Literal["allowed_tools"] = Field(description="What this is.")
    mode: Literal["auto", "required"] = Field("auto", description="Whether one of them must be called.")
    tools: list[NamedTool] = Field(fail_fast=True, description="Their names.")

    @property
    def names(self) -> list[str]:
        """The names of the tools that may be called."""
        return [each.function.name for each in self.tools]

    def flat(self) -> dict[str, Any]:
        """The choice in the form of the Responses."""
        return {"type": self.type, "mode": self.mode, "tools": [each.flat() for each in self.tools]}


def _choice(given: Any) -> Any:
    """A choice in the forms of several providers."""
    if isinstance(given, dict):
        kind = given.get("type")
        if kind in ("any", "auto", "none", "required"):
            return _choice(kind)
        if kind == "allowed_tools" and isinstance(inner := given.get("allowed_tools"), dict):
            return {"type": kind} | inner
        return given | {"type": "function"} if kind == "tool" else given
    return "required" if given == "any" else given


def _choice_tag(given: Any) -> str:
    if isinstance(given, dict | Object):
        kind = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
        return "[allowed]" if kind == "allowed_tools" else "[named]"
    return "[word]"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("[word]")]
    | Annotated[NamedTool, Tag("[named]")]
    | Annotated[AllowedTools, Tag("[allowed]")],
    Discriminator(_choice_tag),
    BeforeValidator(_choice),
]


def complaint(tools: Sequence[Tool], choice: Any) -> str | None:
    """What is wrong with a choice among tools; None: nothing."""
    names = {tool.function.name for tool in tools}
    if choice in (None, "none", "auto"):
        return None
    if not tools:
        return "tool_choice: a call must come, and there are no tools: give tools, or leave it out"
    named = choice.names if isinstance(choice, NamedTool | AllowedTools) else []
    if (unknown := next((name for name in named if name not in names), None)) is not None:
        return f"tool_choice: {unknown} is none of the tools, give the name of one"
    if isinstance(choice, AllowedTools) and choice.mode == "required" and not choice.tools:
        return "tool_choice: a call must come, and no tool is allowed: name one, or send the mode auto"
    return None
