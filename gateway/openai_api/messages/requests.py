"""The requests of OpenAI's endpoints, as far as they are supported (`fields` says what happens to others), and how
requests of other APIs are read as chats."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from gateway.openai_api.messages.conversation import (
    AllowedTools,
    ChatMessage,
    NamedTool,
    Tool,
    ToolChoice,
    Tools,
    complaint,
)
from gateway.openai_api.messages.objects import TOO_DEEP, read_request, reported
from gateway.openai_api.messages.options import MOST_TEXTS, GenerationRequest, Limit, Logprobs, _Ids, limited
from gateway.openai_api.messages.thinking import ThinkingFields
from specpair.http_service.hints import rename_hints
from specpair.protocol.errors import InvalidRequest, SpecPairError


class CompletionRequest(GenerationRequest):
    """A text that continues a prompt."""

    prompt: str | Annotated[list[str], Field(fail_fast=True)] | _Ids | Annotated[list[_Ids], Field(fail_fast=True)] = (
        Field(
            description=f"Text, token ids, or a list of either: each is continued. At most {MOST_TEXTS} texts with `n`."
        )
    )
    suffix: str | None = Field(
        None,
        description="What comes behind the text, which fills the gap between a prompt and this. Only where the "
        "vocabulary has fill-in-the-middle tokens, and with prompts that are text.",
    )
    echo: bool | None = Field(None, description="Whether the text begins with the prompt.")
    parse_special: bool | None = Field(
        None,
        description="Whether control tokens that a text spells out are encoded as such, as editors need to fill gaps. "
        "False: they are mere text. Default: true.",
    )
    logprobs: Logprobs | Literal[False] | None = Field(
        None, description="Report log probabilities, and so many of the likeliest tokens. False reports none."
    )

    @model_validator(mode="after")
    def _echoed(self) -> "CompletionRequest":
        if self.echo and self.top_logprobs_wanted is not None:
            raise ValueError("echo: log probabilities of the prompt are not computed, leave echo or logprobs out")
        return self

    @property
    def limit(self) -> int | None:
        # OpenAI's default.
        return 16 if self.max_tokens is None else limited(self.max_tokens)

    @property
    def top_logprobs_wanted(self) -> int | None:
        return None if self.logprobs is False else self.logprobs

    def prompts(self) -> list[str | list[int]]:
        """The prompts, each text or token ids. Raises InvalidRequest for none, and for too many."""
        given: Any = self.prompt
        prompts = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
        if not prompts:
            raise InvalidRequest("prompt: the list is empty, give at least one prompt", param="prompt")
        if len(prompts) * self.choices > MOST_TEXTS:
            raise InvalidRequest(
                f"prompt: {len(prompts)} prompts with n = {self.choices} make {len(prompts) * self.choices} texts, a "
                f"request may have {MOST_TEXTS}: send several requests",
                param="prompt",
            )
        return prompts


class ChatRequest(GenerationRequest, ThinkingFields):
    """The assistant's answer to a conversation."""

    messages: list[ChatMessage] = Field(min_length=1, fail_fast=True, description="The conversation, the oldest first.")
    max_completion_tokens: Limit | None = Field(
        None, description="The newer name of `max_tokens`; if both are given, they must be the same."
    )
    logprobs: bool | None = Field(None, description="Whether log probabilities are reported.")
    top_logprobs: Logprobs | None = Field(None, description="How many of the likeliest tokens to report, with it.")
    tools: Tools | None = Field(
        None, description="The tools that the model sees, and the answer may call, unless `tool_choice` is none."
    )
    tool_choice: ToolChoice | None = Field(
        None,
        description="auto: calls may come; none: none comes; required: a call must come; or the tool that must be "
        "called, or those that may. Default: auto.",
    )
    parallel_tool_calls: bool | None = Field(
        None, description="Whether several calls may come. False: the answer ends behind the first one."
    )
    reasoning_format: Literal["auto", "deepseek", "parsed", "hidden", "none", "raw"] | None = Field(
        None, description="none or raw: thoughts stay in the content; hidden: they are left out. Default: auto."
    )
    separate_reasoning: bool | None = Field(None, description="False: thoughts stay in the content (SGLang's name).")

    @model_validator(mode="after")
    def _tools_fit(self) -> "ChatRequest":
        if (wrong := complaint(self.tools or [], self.tool_choice)) is not None:
            raise ValueError(wrong)
        if self.callable_tools and self.has_grammar and self.document is None:
            where = next(where for where, options in self._grammars.items() if options)
            raise ValueError(
                f"{where}: an answer that may call tools keeps to no other grammar than that of JSON: leave {where} or "
                "tools out, or send tool_choice none"
            )
        return self

    @model_validator(mode="after")
    def _together(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs: only with logprobs")
        both = self.max_tokens, self.max_completion_tokens
        if None not in both and both[0] != both[1]:
            raise ValueError(f"max_tokens: {both[0]}, but max_completion_tokens is {both[1]}: give one of them")
        return self

    @property
    def has_grammar(self) -> bool:
        """Whether the text keeps to a grammar."""
        return any(self._grammars.values())

    @property
    def callable_tools(self) -> list[Tool]:
        """The tools that the answer may call."""
        tools = [] if self.tool_choice == "none" else list(self.tools or [])
        if not isinstance(self.tool_choice, AllowedTools):
            return tools
        allowed = {*self.tool_choice.names}
        return [tool for tool in tools if tool.function.name in allowed]

    @property
    def must_call(self) -> bool:
        """Whether a call must come."""
        required = isinstance(self.tool_choice, AllowedTools) and self.tool_choice.mode == "required"
        return required or self.tool_choice == "required" or self.named_tool is not None

    @property
    def named_tool(self) -> str | None:
        """The tool that must be called, if the request names one."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None

    @property
    def thoughts_apart(self) -> bool:
        """Whether thoughts are told apart from the content."""
        return self.reasoning_format not in ("none", "raw") and self.separate_reasoning is not False

    @property
    def shows_thoughts(self) -> bool:
        return super().shows_thoughts and self.reasoning_format != "hidden"

    def template_variables(self, known: Collection[str]) -> dict[str, Any]:
        """Further variables for the chat template. `known`: those that it has. Others are hints.

        Raises InvalidRequest for a hint with `--strict`.
        """
        variables = self.thinking_variables(known)
        if self.tools:  # with the choice none, too: the prompt begins like that of other turns, and the KV cache has it
            variables["tools"] = [tool.for_template() for tool in self.tools]
        return variables

    @property
    def limit(self) -> int | None:
        return limited(self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens)

    @property
    def top_logprobs_wanted(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


E = TypeVar("E", bound=SpecPairError)
R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")
Names = Mapping[str, str]  # of parameters of a chat, or where paths to them begin, and what they are in the request


def chat_of(body: Mapping[str, object], names: Names) -> ChatRequest:
    """The request for a chat with these fields. Raises InvalidRequest, in the caller's names."""
    with in_terms_of(names):
        try:
            return ChatRequest.model_validate(body)
        except ValidationError as error:
            raise reported(error) from None


def translated(schema: type[R], body: bytes, translate: Callable[[R], T]) -> T:
    """`translate` the request in `body`. Raises InvalidRequest."""
    request = read_request(schema, body)
    try:
        return translate(request)
    except RecursionError:  # it was just not too deep to be read
        raise InvalidRequest(TOO_DEEP) from None


def renamed(error: E, names: Names) -> E:
    """The error with its parameter's name in the request. The longest known prefix is replaced."""
    param = error.details.get("param")
    if not isinstance(param, str):
        return error
    new = _name_in(names, param)
    message = new + error.message.removeprefix(param) if error.message.startswith(param) else error.message
    return type(error)(message, **{**error.details, "param": new})


@contextmanager
def in_terms_of(names: Names) -> Iterator[None]:
    """Within it, errors and hints have the names of a chat; behind it, those of the request."""
    try:
        yield
    except SpecPairError as error:
        raise renamed(error, names) from None
    finally:
        rename_hints(partial(_name_in, names))


def _name_in(names: Names, param: str) -> str:
    path = param.split(".")
    found = (size for size in range(len(path), 0, -1) if ".".join(path[:size]) in names)
    size = next(found, 0)
    return ".".join([names[".".join(path[:size])], *path[size:]]) if size else param


def given(request: BaseModel, fields: Mapping[str, object]) -> dict[str, object]:
    """Those of `fields` that a request has, with their values, and who drafts."""
    return {name: value for name in (*fields, "speculative") if (value := getattr(request, name)) is not None}


def answer_of(text: str, thoughts: str, calls: Sequence[Any]) -> dict[str, Any]:
    """The fields of an answer as a message of a chat. Empty fields are left out: templates get the others."""
    beside = {"reasoning_content": thoughts, "tool_calls": calls}
    content = text or (None if calls else "")
    return {"role": "assistant", "content": content} | {name: each for name, each in beside.items() if each}
