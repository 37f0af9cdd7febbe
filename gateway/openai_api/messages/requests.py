"""The requests of OpenAI's endpoints, as far as they are supported. `fields` says what happens to others."""

import secrets
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from gateway.openai_api.messages.conversation import (
    MOST_TOOLS,
    ChatMessage,
    Content,
    NamedTool,
    Tool,
    ToolChoice,
    complaint,
    joined,
)
from gateway.openai_api.messages.grammar import ResponseFormat, StructuredOutputs
from gateway.openai_api.messages.objects import Object
from gateway.openai_api.messages.seeds import seed_of
from gateway.openai_api.messages.speculative import Speculative
from specpair.options.option import options_of
from specpair.options.request_fields import request_fields
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.grammar import GRAMMARS, GrammarOptions, given_grammars
from specpair.speculation.sampling.processors import MOST_MIN_TOKENS
from specpair.speculation.text_options import TextSpec

MOST_TEXTS = 128  # of one request
MOST_STOPS = 16
LongestStop = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Annotated[list[LongestStop], Field(max_length=MOST_STOPS, fail_fast=True)]
ModelName = Annotated[
    str | None, Field(description="The name that `/v1/models` lists. Default: the model that is served.")
]
Streams = Annotated[bool | None, Field(description="Whether to reply with server-sent events.")]
Drafting = Annotated[Speculative | None, Field(description="Who drafts, and how much.")]
Logprobs = Annotated[int, Field(ge=0, le=20)]


class StreamOptions(Object):
    """What a stream has beside the text."""

    include_usage: Annotated[bool | None, Field(description="Whether the last chunk before [DONE] has the usage.")] = (
        None
    )
    continuous_usage_stats: Annotated[
        bool | None, Field(description="With `include_usage`: whether each chunk has the usage so far.")
    ] = None


class Prediction(Object):
    """What the client expects the text to be."""

    type: Annotated[Literal["content"], Field(description="Always content.")]
    content: Content

    @property
    def text(self) -> str:
        return joined(self.content)


_Ids = Annotated[list[int], Field(fail_fast=True)]


# The options of a text that OpenAI's requests have, too, and what they say of them in another way.
_OTHERWISE = ("strategy", "threshold", "explain", "logprobs")  # not offered, or in another form
_OPTIONS = tuple(name for name in options_of(TextSpec) if name not in _OTHERWISE)
_HERE: dict[str, dict[str, Any]] = {
    "max_tokens": {"usually": "16 for a text; for an answer, as many as the context holds"},
    "temperature": {"usually": "1"},
    "top_k": {"words": "keep this many of the most likely tokens; 0 and -1 keep all", "ge": -1},
    "seed": {
        "words": "determines all random choices; any integer",
        "usually": "one is drawn for each choice",
        "ge": None,
        "lt": None,
    },
    "cache_salt": {"longest": 128},
}


def text_fields(without: Collection[str] = ()) -> dict[str, tuple[Any, Any]]:
    """The options of a text as fields of a request, each of which may be null; some may have another name there."""
    names = [name for name in _OPTIONS if name not in without]
    return request_fields(TextSpec, names, optional=True, **_HERE)


if TYPE_CHECKING:

    class _WithOptions(Object):
        """A request with the options of a text as its parameters, each of which may be null."""

        max_tokens: int | None
        seed: int | None
        min_tokens: int | None
        logit_bias: dict[str, float] | None
        grammar_after: str | None

else:
    _WithOptions = create_model("_WithOptions", __base__=Object, **text_fields())


class _Generation(_WithOptions):
    """What both endpoints have."""

    model: ModelName = None
    n: Annotated[int | None, Field(ge=1, le=MOST_TEXTS, description="How many texts. The first has the seed.")] = None
    best_of: Annotated[int | None, Field(description="Only 1, or the value of `n`.")] = None
    stop: Annotated[
        LongestStop | Stops | None, Field(description="The text ends before the first of these strings.")
    ] = None
    ignore_eos: Annotated[bool | None, Field(description="Whether the model never ends a text.")] = None
    prediction: Annotated[
        Prediction | None, Field(description="What the text is expected to be: draft tokens are taken from it.")
    ] = None
    speculative: Drafting = None
    token_details: Annotated[
        Literal["sources", "decisions"] | None,
        Field(
            description="What is told of each token: where it came from, or also why it was committed, with its "
            "probability and the draft token. Default: nothing."
        ),
    ] = None
    response_format: Annotated[
        ResponseFormat | None, Field(description="A free text, any object of JSON, or JSON under a schema.")
    ] = None
    structured_outputs: Annotated[
        StructuredOutputs | None, Field(description="What the text keeps to, as vLLM names it.")
    ] = None
    stream: Streams = None
    stream_options: Annotated[StreamOptions | None, Field(description="Only with `stream`.")] = None

    @model_validator(mode="after")
    def _one_grammar(self) -> "_Generation":
        given = [(where, name, value) for where, options in self._grammars.items() for name, value in options.items()]
        if len(given) > 1:
            first, second = (where if where == name else f"{where}.{name}" for where, name, _ in given[:2])
            raise ValueError(f"{given[1][0]}: give either {first} or {second}")
        for where, name, value in given:
            if (wrong := options_of(GrammarOptions)[name].complaint(value)) is not None:
                raise ValueError(f"{where}: {wrong}")
        return self

    @property
    def _grammars(self) -> dict[str, dict[str, Any]]:
        """The options of a grammar, by the parameter that gives them. Raises ValueError."""
        return {name: {name: getattr(self, name)} for name in given_grammars(self)} | {
            "response_format": {} if self.response_format is None else self.response_format.options,
            "structured_outputs": {} if self.structured_outputs is None else self.structured_outputs.options,
        }

    @property
    def document(self) -> Any:
        """The JSON Schema of the text, true for any JSON; None: the text keeps to none."""
        return next((options["json_schema"] for options in self._grammars.values() if "json_schema" in options), None)

    @model_validator(mode="after")
    def _streamed(self) -> "_Generation":
        if self.include_usage and not self.stream:
            raise ValueError("stream_options: there are none without stream")
        if self.best_of not in (None, 1, self.choices):
            raise ValueError("best_of: not supported: leave it out, or send the value of n")
        if self.min_tokens and self.limit is not None and self.min_tokens > self.limit:
            raise ValueError(f"min_tokens: {self.min_tokens}, but the text may have {self.limit}: give more max_tokens")
        return self

    @property
    def limit(self) -> int | None:
        """The most tokens of a text; None: as many as the context holds."""
        raise NotImplementedError

    @property
    def choices(self) -> int:
        """How many texts are wanted."""
        return 1 if self.n is None else self.n

    @property
    def bias(self) -> dict[str, float]:
        """What is added to the logits of token ids."""
        return self.logit_bias or {}

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    @property
    def continuous_usage(self) -> bool:
        """Whether each chunk of a stream has the usage so far."""
        return bool(self.include_usage and self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def top_logprobs_wanted(self) -> int | None:
        """For how many of the likeliest tokens log probabilities are wanted; None: for none."""
        raise NotImplementedError

    def specs(self, keeps: Mapping[str, Any] = MappingProxyType({})) -> list[TextSpec]:
        """The options of each choice. `keeps`: further ones; a grammar among them is that of the text."""
        options = options_of(TextSpec)
        given = {
            name: options[name].of_json(getattr(self, name))
            for name in _OPTIONS
            if getattr(self, name) is not None and name not in GRAMMARS
        }
        for grammar in () if "grammar" in keeps else self._grammars.values():
            given |= {name: options[name].of_json(value) for name, value in grammar.items()}
        given = (
            {"temperature": 1.0} | given | {**keeps} | {"max_tokens": self.limit, "logprobs": self.top_logprobs_wanted}
        )
        given["top_k"] = max(0, given.get("top_k", 0))
        given["explain"] = self.token_details == "decisions"
        if self.ignore_eos:
            given["min_tokens"] = MOST_MIN_TOKENS
        seeds = (
            secrets.randbelow(gumbel.SEED_LIMIT) if self.seed is None else seed_of(self.seed, choice)
            for choice in range(self.choices)
        )
        return [TextSpec(**given | {"seed": seed}) for seed in seeds]


class CompletionRequest(_Generation):
    """A text that continues a prompt."""

    prompt: Annotated[
        str | Annotated[list[str], Field(fail_fast=True)] | _Ids | Annotated[list[_Ids], Field(fail_fast=True)],
        Field(
            description=f"Text, token ids, or a list of either: each is continued. At most {MOST_TEXTS} texts with `n`."
        ),
    ]
    suffix: Annotated[
        str | None,
        Field(
            description="What comes behind the text, which fills the gap between a prompt and this. Only where the "
            "vocabulary has fill-in-the-middle tokens, and with prompts that are text."
        ),
    ] = None
    echo: Annotated[bool | None, Field(description="Whether the text begins with the prompt.")] = None
    logprobs: Annotated[
        Logprobs | Literal[False] | None,
        Field(description="Report log probabilities, and so many of the likeliest tokens. False reports none."),
    ] = None

    @model_validator(mode="after")
    def _echoed(self) -> "CompletionRequest":
        if self.echo and self.top_logprobs_wanted is not None:
            raise ValueError("echo: log probabilities of the prompt are not computed, leave echo or logprobs out")
        return self

    @property
    def limit(self) -> int | None:
        # OpenAI's default.
        return 16 if self.max_tokens is None else self.max_tokens

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


class ChatRequest(_Generation):
    """The assistant's answer to a conversation."""

    messages: Annotated[
        list[ChatMessage], Field(min_length=1, fail_fast=True, description="The conversation, the oldest first.")
    ]
    max_completion_tokens: Annotated[
        int | None, Field(ge=1, description="The newer name of `max_tokens`; if both are given, they must be the same.")
    ] = None
    logprobs: Annotated[bool | None, Field(description="Whether log probabilities are reported.")] = None
    top_logprobs: Annotated[
        Logprobs | None, Field(description="How many of the likeliest tokens are reported, with `logprobs`.")
    ] = None
    reasoning_effort: Annotated[
        str | None,
        Field(max_length=32, description="A variable of the chat template; only `none` where it has no such one."),
    ] = None
    thinking_budget: Annotated[
        int | None,
        Field(ge=0, description="A variable of the chat template: tokens of thoughts, where it has such a one."),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, Field(description="Further variables of the chat template.")
    ] = None

    tools: Annotated[
        Annotated[list[Tool], Field(max_length=MOST_TOOLS, fail_fast=True)] | None,
        Field(description="The tools that the model sees, and the answer may call, unless `tool_choice` is none."),
    ] = None
    tool_choice: Annotated[
        ToolChoice | None,
        Field(
            description="auto: calls may come; none: none comes; required: a call must come; or the tool that must be "
            "called. Default: auto."
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Field(description="Whether several calls may come. False: the answer ends behind the first one.")
    ] = None
    reasoning_format: Annotated[
        Literal["auto", "deepseek", "none"] | None,
        Field(description="none: thoughts stay in the content, as llama-server names it. Default: auto."),
    ] = None
    separate_reasoning: Annotated[
        bool | None, Field(description="False: thoughts stay in the content, as SGLang names it.")
    ] = None

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
        return [] if self.tool_choice == "none" else list(self.tools or [])

    @property
    def must_call(self) -> bool:
        """Whether a call must come."""
        return self.tool_choice == "required" or self.named_tool is not None

    @property
    def named_tool(self) -> str | None:
        """The tool that must be called, if the request names one."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None

    @property
    def thoughts_apart(self) -> bool:
        """Whether thoughts are told apart from the content."""
        return self.reasoning_format != "none" and self.separate_reasoning is not False

    def template_variables(self, template: str) -> dict[str, Any]:
        """Further variables for the chat template. Raises InvalidRequest for one that the template does not know."""
        variables = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort is not None and "reasoning_effort" in template:
            variables.setdefault("reasoning_effort", self.reasoning_effort)
        elif self.reasoning_effort not in (None, "", "none"):
            raise InvalidRequest(
                "reasoning_effort: the chat template of this model does not know it, leave it out",
                param="reasoning_effort",
            )
        if self.thinking_budget is not None:
            if "thinking_budget" not in template:
                raise InvalidRequest(
                    "thinking_budget: the chat template of this model does not know it, leave it out",
                    param="thinking_budget",
                )
            variables.setdefault("thinking_budget", self.thinking_budget)
        if self.tools:  # with the choice none, too: the prompt begins like that of other turns, and the KV cache has it
            variables["tools"] = [tool.for_template() for tool in self.tools]
        return variables

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def top_logprobs_wanted(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None
