"""Requests for responses, as far as they are supported. `fields` says what happens to others."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, create_model, model_validator

from gateway.openai_api.messages.conversation import Arguments, TextFormat, ToolChoice, flat_tool, text_part
from gateway.openai_api.messages.objects import Object, by_type, check_type, hosted_text
from gateway.openai_api.messages.options import (
    Drafting,
    FormatType,
    JsonSchemaFormat,
    Limit,
    ModelName,
    Streams,
    text_fields,
)
from gateway.openai_api.messages.thinking import ThinkingFields
from gateway.openai_api.tools.free_text import TEXT_ARGUMENT


class InputText(Object):
    """A part of text."""

    type: Literal["input_text", "output_text", "text", "refusal"] = Field("input_text", description="Only text.")
    text: str = Field(description="The text; of a refusal, `refusal`.")

    @model_validator(mode="before")
    @classmethod
    def _of_programs(cls, given: Any) -> Any:
        return text_part(given)


Text = Annotated[
    str | Annotated[list[InputText], Field(fail_fast=True)],
    BeforeValidator(lambda given: "" if given is None else given),
    Field(description="A string, or parts of text. Null is empty."),
]


class InputMessage(Object):
    """A message: of the caller, or of an earlier answer."""

    type: Literal["message"] = Field("message", description="What this is.")
    role: Literal["user", "assistant", "system", "developer"] = Field(
        description="Who says it; `developer` counts as `system`."
    )
    content: Text


class InputThoughts(Object):
    """A part of the thoughts before an earlier answer."""

    type: Literal["reasoning_text", "summary_text"] = Field(description="What this is.")
    text: str = Field(description="The thoughts.")


_Thoughts = Annotated[list[InputThoughts], Field(fail_fast=True)]


class InputReasoning(Object):
    """The thoughts before an earlier answer. They go to the chat template with it."""

    type: Literal["reasoning"] = Field(description="What this is.")
    content: _Thoughts | None = Field(None, description="The thoughts.")
    summary: _Thoughts | None = Field(None, description="A summary, which is taken where the content is empty.")


def shown_name(name: str, namespace: str | None) -> str:
    """A tool's name as the model sees and writes it."""
    return name if namespace is None else f"{namespace}.{name}"


class _OfATool(Object):
    """A part of an earlier answer, or of its tool."""

    name: str | None
    namespace: str | None = Field(None, description="The tool's namespace, if it is in one.")

    @property
    def tool(self) -> str:
        """The tool's name as the model sees it."""
        return shown_name(self.name or "", self.namespace)


class InputCall(_OfATool):
    """A call of a tool in an earlier answer."""

    type: Literal["function_call"] = Field(description="What this is.")
    call_id: str = Field(description="What the answer of the tool refers to.")
    name: str = Field(description="The tool's name.")
    arguments: Arguments = None

    @property
    def function(self) -> dict[str, Any]:
        """The call as the model sees it."""
        return {"name": self.tool, "arguments": self.arguments}


class InputCustomCall(_OfATool):
    """A call of a tool with a free text in an earlier answer."""

    type: Literal["custom_tool_call"] = Field(description="What this is.")
    call_id: str = Field(description="What the answer of the tool refers to.")
    name: str = Field(description="The tool's name.")
    input: str = Field(description="The text.")

    @property
    def function(self) -> dict[str, Any]:
        """The call as the model sees it."""
        return {"name": self.tool, "arguments": {TEXT_ARGUMENT: self.input}}


class InputCallOutput(_OfATool):
    """The answer of a tool."""

    type: Literal["function_call_output", "custom_tool_call_output"] = Field(description="What this is.")
    call_id: str | None = Field(None, description="The call's.")
    name: str | None = Field(None, description="The tool's name. Default: that in the call.")
    output: Text


class ItemReference(Object):
    """An item of a response that is kept."""

    type: Literal["item_reference"] | None = Field(None, description="What this is.")
    id: str = Field(description="The item's id.")


class HostedCall(NamedTuple):
    """How the model sees the call of a tool that a provider ran: as one of a function."""

    name: str  # of the function; empty: as the item says
    arguments: str  # the field of the item that holds them
    answer: tuple[str, ...] = ()  # fields that may hold the answer; none: it is in an item of its own


# By type. Empty: an item that holds nothing for the model.
HOSTED: dict[str, HostedCall | None] = {
    "mcp_call": HostedCall("", "arguments", ("output", "error")),
    "code_interpreter_call": HostedCall("code_interpreter", "code", ("outputs",)),
    "file_search_call": HostedCall("file_search", "queries", ("results",)),
    "web_search_call": HostedCall("web_search", "action", ("results",)),
    "local_shell_call": HostedCall("local_shell", "action"),
    "shell_call": HostedCall("shell", "action"),
    "apply_patch_call": HostedCall("apply_patch", "operation"),
    "computer_call": HostedCall("computer", "action"),
    **dict.fromkeys(("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "image_generation_call")),
}
HOSTED_OUTPUTS = tuple(
    f"{each}_output" for each in ("local_shell_call", "shell_call", "apply_patch_call", "computer_call")
)


class HostedItem(BaseModel):
    """A call of a tool that a provider runs, or the answer of one. The model sees it as that of a function."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal[(*HOSTED, *HOSTED_OUTPUTS)] = Field(description="What this is.")  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _is_text(self) -> "HostedItem":
        if self._field("result") is not None:
            raise ValueError("it holds an image: the model reads text alone, leave it out")
        _ = self.answer
        return self

    def _field(self, *names: str) -> Any:
        return next((value for name in names if (value := (self.model_extra or {}).get(name)) is not None), None)

    @property
    def call_id(self) -> str:
        """What the answer refers to."""
        return str(self._field("call_id", "id") or "")

    @property
    def function(self) -> dict[str, Any] | None:
        """The call; None: there is none, or none with an answer."""
        form = HOSTED.get(self.type)
        if form is None or (form.answer and self.answer is None):
            return None
        given = self._field(form.arguments)
        arguments = given if isinstance(given, str | dict) and form.arguments != "code" else {form.arguments: given}
        return {"name": form.name or str(self._field("name")), "arguments": arguments}

    @property
    def answer(self) -> str | None:
        """The answer; None: there is none here."""
        form = HOSTED.get(self.type, HostedCall("", "", ("output", "status")))
        given = None if form is None else self._field(*form.answer)
        return None if given is None else hosted_text(given)


def _item_type(given: Mapping[str, Any]) -> str:
    return "item_reference" if "id" in given and given.keys() <= {"id", "type"} else "message"


Item = Annotated[
    Annotated[InputMessage, Tag("[message]")]
    | Annotated[InputReasoning, Tag("[reasoning]")]
    | Annotated[InputCall, Tag("[function_call]")]
    | Annotated[InputCustomCall, Tag("[custom_tool_call]")]
    | Annotated[InputCallOutput, Tag("[output]")]
    | Annotated[ItemReference, Tag("[item_reference]")]
    | Annotated[HostedItem, Tag("[hosted]")],
    by_type(
        "items",
        *("message", "reasoning", "function_call", "custom_tool_call", "item_reference"),
        usually=_item_type,
        together={"output": ("function_call_output", "custom_tool_call_output"), "hosted": (*HOSTED, *HOSTED_OUTPUTS)},
    ),
]


TEXT_FIELDS = text_fields(without=["max_tokens"])


class ResponseTextFormat(JsonSchemaFormat):
    """The text's format: free text, any JSON object, or JSON under a schema."""

    type: FormatType

    @model_validator(mode="after")
    def _has_a_schema(self) -> "ResponseTextFormat":
        if (self.type == "json_schema") != (self.schema_ is not None):
            raise ValueError("a schema is needed with the type json_schema, and with no other")
        return self


class ResponseText(Object):
    """How the text is written."""

    format: ResponseTextFormat | None = Field(None, description="What the text is. Default: a free text.")


class _OfTheCaller(Object):
    """Base of the functions that the caller's program runs."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_function(cls, given: Any) -> Any:
        return check_type(flat_tool(given), ("function", "custom"), "leave it out, or give a function of your program")


class ResponseTool(_OfTheCaller):
    """A tool that the answer may call."""

    type: Literal["function", "custom"] = Field("function", description="custom: it takes a free text.")
    name: str = Field(description="Its name.")
    description: str | None = Field(None, description="What it does.")
    parameters: dict[str, Any] | None = Field(None, description="The JSON Schema of its arguments.")
    strict: bool | None = Field(None, description="Whether the arguments always keep to the schema.")
    format: TextFormat | None = Field(None, description="Of the free text of a custom tool. Default: any text.")


class ResponseNamespace(Object):
    """Tools under a name that they share. The model sees each as `NAMESPACE.NAME`."""

    type: Literal["namespace"] = Field(description="What this is.")
    name: str = Field(description="What calls of these tools have as `namespace`.")
    description: str | None = Field(None, description="What they are for. The description of each tool begins with it.")
    tools: list[ResponseTool] = Field(fail_fast=True, description="The tools: functions.")


class NamedFunction(NamedTuple):
    """A tool as the model sees it: by this name, with this description. `path`: of the tool in the request."""

    name: str
    description: str | None
    tool: ResponseTool
    namespace: str | None
    path: str


def _tool_tag(given: Any) -> str:
    """The tag of a tool: a namespace, or else a function."""
    found = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
    return "[namespace]" if found == "namespace" else "[function]"


_Tool = Annotated[
    Annotated[ResponseTool, Tag("[function]")] | Annotated[ResponseNamespace, Tag("[namespace]")],
    Discriminator(_tool_tag),
]

if TYPE_CHECKING:

    class _WithOptions(ThinkingFields):
        temperature: float | None = None
        top_p: float | None = None

else:
    _WithOptions = create_model("_WithOptions", __base__=ThinkingFields, **TEXT_FIELDS)


class ResponseRequest(_WithOptions):
    """The answer to a conversation, which may go on from an earlier response."""

    model: ModelName = None
    input: str | Annotated[list[Item], Field(min_length=1, fail_fast=True)] = Field(
        description="What the user says, or the items of a conversation, the oldest first."
    )
    instructions: str | None = Field(None, description="A system message before all others.")
    previous_response_id: str | None = Field(
        None, description="The response that the conversation goes on from, without its instructions."
    )
    max_output_tokens: Limit | None = Field(
        None, description="The most tokens of the answer. Default: -1, as many as the context holds."
    )
    store: bool | None = Field(None, description="Whether the response is kept for a while. Default: true.")
    stream: Streams = None
    text: ResponseText | None = Field(None, description="How the text is written.")
    tools: Annotated[list[_Tool], Field(fail_fast=True)] | None = Field(None, description="Tools that may be called.")
    tool_choice: ToolChoice | None = Field(None, description="Whether tools are called, or which one. Default: auto.")
    parallel_tool_calls: bool | None = Field(None, description="Whether several may be called at once.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Report log probabilities, and so many of the likeliest tokens."
    )
    include: list[str] | None = Field(
        None, description="message.output_text.logprobs: report log probabilities. Others have no effect."
    )
    metadata: dict[str, str] | None = Field(None, description="Comes back with the response.")
    speculative: Drafting = None

    @property
    def logprobs(self) -> bool:
        """Whether log probabilities are reported."""
        return self.top_logprobs is not None or "message.output_text.logprobs" in (self.include or ())

    def functions(self) -> list[NamedFunction]:
        """The tools, those of namespaces among them, in their order."""
        found: list[NamedFunction] = []
        for at, each in enumerate(self.tools or ()):
            if isinstance(each, ResponseTool):
                found.append(NamedFunction(each.name, each.description, each, None, f"tools.{at}"))
                continue
            for inner, tool in enumerate(each.tools):
                said = "\n\n".join(filter(None, (each.description, tool.description))) or None
                name = shown_name(tool.name, each.name)
                found.append(NamedFunction(name, said, tool, each.name, f"tools.{at}.tools.{inner}"))
        return found
