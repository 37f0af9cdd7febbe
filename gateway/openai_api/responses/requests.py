"""Requests for responses, as far as they are supported. `fields` says what happens to others."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag, create_model, model_validator

from gateway.openai_api.messages.grammar import FormatType, JsonSchemaFormat
from gateway.openai_api.messages.objects import Object, check_type
from gateway.openai_api.messages.requests import Drafting, ModelName, Streams, text_fields
from gateway.openai_api.responses.fields import TABLE
from gateway.openai_api.responses.items import Item, shown_name

TEXT_FIELDS = text_fields(without=["max_tokens"])


class _Object(Object):
    table = TABLE


class ResponseTextFormat(JsonSchemaFormat):
    """What the text is: a free text, any object of JSON, or JSON under a schema."""

    table = TABLE
    type: FormatType

    @model_validator(mode="after")
    def _has_a_schema(self) -> "ResponseTextFormat":
        if (self.type == "json_schema") != (self.schema_ is not None):
            raise ValueError("a schema is needed with the type json_schema, and with no other")
        return self


class ResponseText(_Object):
    """How the text is written."""

    format: Annotated[ResponseTextFormat | None, Field(description="What the text is. Default: a free text.")] = None


class ResponseReasoning(_Object):
    """How much the model thinks."""

    effort: Annotated[
        str | None,
        Field(max_length=32, description="A variable of the chat template; only `none` where it has no such one."),
    ] = None


class _OfTheCaller(_Object):
    """What is about a function, which the caller's program runs."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_function(cls, given: Any) -> Any:
        return check_type(given, "function", "leave it out, or give a function that your program runs")


class ResponseTool(_OfTheCaller):
    """A tool that the answer may call."""

    type: Annotated[Literal["function"], Field(description="Only functions.")]
    name: Annotated[str, Field(description="Its name.")]
    description: Annotated[str | None, Field(description="What it does.")] = None
    parameters: Annotated[dict[str, Any] | None, Field(description="The JSON Schema of its arguments.")] = None
    strict: Annotated[bool | None, Field(description="Whether the arguments always keep to the schema.")] = None


class ResponseNamespace(_Object):
    """Tools under a name that they share. The model sees each as `NAMESPACE.NAME`."""

    type: Annotated[Literal["namespace"], Field(description="What this is.")]
    name: Annotated[str, Field(description="What calls of these tools have as `namespace`.")]
    description: Annotated[
        str | None, Field(description="What they are for. The description of each tool begins with it.")
    ] = None
    tools: Annotated[list[ResponseTool], Field(fail_fast=True, description="The tools: functions.")]


class NamedFunction(NamedTuple):
    """A tool as the model sees it: by this name, with this description. `path`: of the tool in the request."""

    name: str
    description: str | None
    tool: ResponseTool
    namespace: str | None
    path: str


def _tool_tag(given: Any) -> str:
    """The tag of a tool: whatever is no namespace has to be a function."""
    found = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
    return "[namespace]" if found == "namespace" else "[function]"


class ResponseToolChoice(_OfTheCaller):
    """The tool that must be called."""

    type: Annotated[Literal["function"], Field(description="Always a function.")]
    name: Annotated[str, Field(description="Its name.")]


_Tool = Annotated[
    Annotated[ResponseTool, Tag("[function]")] | Annotated[ResponseNamespace, Tag("[namespace]")],
    Discriminator(_tool_tag),
]

if TYPE_CHECKING:

    class _WithOptions(_Object):
        temperature: float | None = None
        top_p: float | None = None

else:
    _WithOptions = create_model("_WithOptions", __base__=_Object, **TEXT_FIELDS)


class ResponseRequest(_WithOptions):
    """The answer to a conversation, which may go on from an earlier response."""

    model: ModelName = None
    input: Annotated[
        str | Annotated[list[Item], Field(min_length=1, fail_fast=True)],
        Field(description="What the user says, or the items of a conversation, the oldest first."),
    ]
    instructions: Annotated[str | None, Field(description="A system message before all others.")] = None
    previous_response_id: Annotated[
        str | None, Field(description="The response that the conversation goes on from, without its instructions.")
    ] = None
    max_output_tokens: Annotated[
        int | None, Field(ge=1, description="The most tokens of the answer. Default: as many as the context holds.")
    ] = None
    store: Annotated[bool | None, Field(description="Whether the response is kept for a while. Default: true.")] = None
    stream: Streams = None
    text: Annotated[ResponseText | None, Field(description="How the text is written.")] = None
    reasoning: Annotated[ResponseReasoning | None, Field(description="How much the model thinks.")] = None
    tools: Annotated[
        Annotated[list[_Tool], Field(fail_fast=True)] | None, Field(description="Tools that may be called.")
    ] = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | ResponseToolChoice | None,
        Field(description="Whether tools are called, or which one. Default: auto."),
    ] = None
    parallel_tool_calls: Annotated[bool | None, Field(description="Whether several may be called at once.")] = None
    top_logprobs: Annotated[
        Annotated[int, Field(ge=0, le=20)] | None,
        Field(description="Report log probabilities, and so many of the likeliest tokens."),
    ] = None
    include: Annotated[
        list[str] | None,
        Field(description="message.output_text.logprobs: report log probabilities. Others have no effect."),
    ] = None
    metadata: Annotated[dict[str, str] | None, Field(description="Comes back with the response.")] = None
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
