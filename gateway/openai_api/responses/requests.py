"""Requests for responses, as far as they are supported. `fields` says what happens to others."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag, create_model, model_validator

from gateway.openai_api.messages.conversation import Arguments
from gateway.openai_api.messages.objects import Object, by_type, check_type
from gateway.openai_api.messages.options import Drafting, FormatType, JsonSchemaFormat, ModelName, Streams, text_fields


class InputText(Object):
    """A part of text."""

    type: Literal["input_text", "output_text", "text"] = Field(description="Only text.")
    text: str = Field(description="The text.")


Text = Annotated[
    str | Annotated[list[InputText], Field(fail_fast=True)], Field(description="A string, or parts of text.")
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


class InputCall(Object):
    """A call of a tool in an earlier answer."""

    type: Literal["function_call"] = Field(description="What this is.")
    call_id: str = Field(description="What the answer of the tool refers to.")
    name: str = Field(description="The tool's name.")
    namespace: str | None = Field(None, description="The tool's namespace, if it is in one.")
    arguments: Arguments = None


class InputCallOutput(Object):
    """The answer of a tool."""

    type: Literal["function_call_output"] = Field(description="What this is.")
    call_id: str = Field(description="The call's.")
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


class ResponseReasoning(Object):
    """How much the model thinks."""

    effort: str | None = Field(
        None, max_length=32, description="A variable of the chat template; only `none` where it has no such one."
    )


class _OfTheCaller(Object):
    """Base of the functions that the caller's program runs."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_function(cls, given: Any) -> Any:
        return check_type(given, "function", "leave it out, or give a function that your program runs")


class ResponseTool(_OfTheCaller):
    """A tool that the answer may call."""

    type: Literal["function"] = Field(description="Only functions.")
    name: str = Field(description="Its name.")
    description: str | None = Field(None, description="What it does.")
    parameters: dict[str, Any] | None = Field(None, description="The JSON Schema of its arguments.")
    strict: bool | None = Field(None, description="Whether the arguments always keep to the schema.")


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


class ResponseToolChoice(_OfTheCaller):
    """The tool that must be called."""

    type: Literal["function"] = Field(description="Always a function.")
    name: str = Field(description="Its name.")


_Tool = Annotated[
    Annotated[ResponseTool, Tag("[function]")] | Annotated[ResponseNamespace, Tag("[namespace]")],
    Discriminator(_tool_tag),
]

if TYPE_CHECKING:

    class _WithOptions(Object):
        temperature: float | None = None
        top_p: float | None = None

else:
    _WithOptions = create_model("_WithOptions", __base__=Object, **TEXT_FIELDS)


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
    max_output_tokens: int | None = Field(
        None, ge=1, description="The most tokens of the answer. Default: as many as the context holds."
    )
    store: bool | None = Field(None, description="Whether the response is kept for a while. Default: true.")
    stream: Streams = None
    text: ResponseText | None = Field(None, description="How the text is written.")
    reasoning: ResponseReasoning | None = Field(None, description="How much the model thinks.")
    tools: Annotated[list[_Tool], Field(fail_fast=True)] | None = Field(None, description="Tools that may be called.")
    tool_choice: Literal["none", "auto", "required"] | ResponseToolChoice | None = Field(
        None, description="Whether tools are called, or which one. Default: auto."
    )
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
