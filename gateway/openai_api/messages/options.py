"""Options that all requests for texts share: sampling, stop strings, seeds, the grammar, who drafts."""

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from gateway.openai_api.messages.conversation import Content, joined
from gateway.openai_api.messages.objects import Object
from specpair.http_service.hints import take_hint
from specpair.options.option import options_of
from specpair.options.request_fields import request_fields
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.grammar import GRAMMARS, CheckedSchema, GrammarOptions, given_grammars, schema_check
from specpair.speculation.sampling.processors import MOST_MIN_TOKENS
from specpair.speculation.text_options import TextSpec

FormatType = Annotated[
    Literal["text", "json_object", "json_schema"], Field(description="text, json_object, json_schema.")
]
_OBJECT = {"type": "object"}


class JsonSchemaFormat(Object):
    """A named schema."""

    name: str | None = Field(None, max_length=256, description="Has no effect.")
    description: str | None = Field(None, description="Has no effect.")
    schema_: Annotated[dict[str, Any] | None, schema_check(), Field(alias="schema", description="The JSON Schema.")] = (
        None
    )
    strict: bool | None = Field(None, description="Has no effect: the text is valid all the same.")


class ResponseFormat(Object):
    """The text's format: free text, any JSON object, or JSON under a schema."""

    type: FormatType
    json_schema: JsonSchemaFormat | None = Field(None, description="With json_schema: the schema.")
    schema_: Annotated[
        dict[str, Any] | None,
        schema_check(),
        Field(alias="schema", description="The schema, as llama-server takes it."),
    ] = None

    @model_validator(mode="after")
    def _has_a_schema(self) -> "ResponseFormat":
        if self.type == "json_schema" and self._schema is None:
            raise ValueError("the schema is missing: give json_schema.schema")
        if self.type == "text" and (self.json_schema is not None or self.schema_ is not None):
            raise ValueError("there is a schema, and the type is text: give json_schema as the type")
        return self

    @property
    def _schema(self) -> dict[str, Any] | None:
        named = None if self.json_schema is None else self.json_schema.schema_
        return self.schema_ if named is None else named

    @property
    def options(self) -> dict[str, Any]:
        """The options of the text."""
        if self.type == "text":
            return {}
        return {"json_schema": _OBJECT if self._schema is None else self._schema}


class StructuredOutputs(Object):
    """One of these, as vLLM names them."""

    json_: dict[str, Any] | str | None = Field(None, alias="json", description="A JSON Schema, or its text.")
    regex: str | None = Field(None, description="A regular expression.")
    choice: list[str] | None = Field(None, min_length=1, description="One of these texts.")
    grammar: str | None = Field(None, description="A grammar in Lark or GBNF.")
    json_object: bool | None = Field(None, description="Any object of JSON.")

    @field_validator("json_")
    @classmethod
    def _read(cls, given: Any) -> Any:
        try:
            schema = json.loads(given) if isinstance(given, str) else given
        except (ValueError, RecursionError):
            raise ValueError("this is not JSON") from None
        return CheckedSchema(schema) if isinstance(schema, dict) else schema

    @property
    def options(self) -> dict[str, Any]:
        """The options of the text."""
        given = {name: getattr(self, name) for name in ("regex", "choice", "grammar")}
        given["json_schema"] = _OBJECT if self.json_object and self.json_ is None else self.json_
        return {name: value for name, value in given.items() if value is not None}


def seed_of(given: int, choice: int = 0) -> int:
    """The seed of a request's choice, from 0 to below `gumbel.SEED_LIMIT`.

    Choice 0 has the given seed itself where it lies in that range. Any other is a hash of seed and choice.
    """
    if choice == 0 and 0 <= given < gumbel.SEED_LIMIT:
        return given
    digest = hashlib.blake2b(f"{given}/{choice}".encode(), digest_size=8, person=b"specpair-seed").digest()
    return int.from_bytes(digest, "big") % gumbel.SEED_LIMIT


Mode = Literal["off", "auto", "remote", "fused"]


class Speculative(Object):
    """Who drafts, and how much. Neither changes the text."""

    mode: Mode | None = Field(
        None,
        description="off: nobody, the target decodes alone; remote: the machine of `drafter serve`; fused: the "
        "verifier; auto: the fastest of these that can be had. Default: as the service was started.",
    )
    draft_n: int | None = Field(
        None,
        ge=0,
        description="Draft tokens in a request to the target, in mode remote behind those that are under way. "
        "Default: chosen for speed.",
    )

    @model_validator(mode="after")
    def _drafts(self) -> "Speculative":
        if self.mode == "off" and self.draft_n is not None:
            raise ValueError("draft_n: nothing is drafted in mode off, leave one of the two out")
        return self


MOST_TEXTS = 128  # of one request
MOST_STOPS = 16
LongestStop = Annotated[str, Field(min_length=1, max_length=1024)]
StopList = Annotated[list[LongestStop], Field(max_length=MOST_STOPS, fail_fast=True)]


def _without_empty(given: Any) -> Any:
    """Stop strings without empty ones, which end no text."""
    if isinstance(given, list):
        return [each for each in given if each not in ("", None)]
    return None if given == "" else given


Stops = Annotated[LongestStop | StopList | None, BeforeValidator(_without_empty)]
Limit = Annotated[int, Field(ge=1)] | Literal[-1, -2]  # -1, and Ollama's -2: as many tokens as the context holds


def limited(tokens: int | None) -> int | None:
    """The most tokens of a text; None: as many as the context holds."""
    return None if tokens is not None and tokens < 0 else tokens


ModelName = Annotated[
    str | None, Field(description="The name that `/v1/models` lists. Default: the model that is served.")
]
Streams = Annotated[bool | None, Field(description="Whether to reply with server-sent events.")]
Drafting = Annotated[Speculative | None, Field(description="Who drafts, and how much.")]
Logprobs = Annotated[int, Field(ge=0, le=20)]


class StreamOptions(Object):
    """What a stream has beside the text."""

    include_usage: bool | None = Field(None, description="Whether the last chunk before [DONE] has the usage.")
    continuous_usage_stats: bool | None = Field(
        None, description="With `include_usage`: whether each chunk has it so far."
    )


class Prediction(Object):
    """What the client expects the text to be."""

    type: Literal["content"] = Field(description="Always content.")
    content: Content

    @property
    def text(self) -> str:
        return joined(self.content)


_Ids = Annotated[list[int], Field(fail_fast=True)]


# The options of a text that OpenAI's requests have, too, and what they say of them in another way.
_OTHERWISE = ("strategy", "threshold", "explain", "logprobs")  # not offered, or in another form
_OPTIONS = tuple(name for name in options_of(TextSpec) if name not in _OTHERWISE)
_HERE: dict[str, dict[str, Any]] = {
    "max_tokens": {
        "words": "maximum number of tokens to generate; -1: as many as the context holds",
        "usually": "16 for a text; for an answer, -1",
        "json": lambda: Limit,
        "ge": None,
    },
    "temperature": {"usually": "1"},
    "top_p": {
        "words": "draw from the fewest most likely tokens whose probabilities add up to this; 1: all; 0: greedy",
        "gt": None,
        "ge": 0.0,
    },
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


class GenerationRequest(_WithOptions):
    """Fields of both endpoints."""

    model: ModelName = None
    n: int | None = Field(None, ge=1, le=MOST_TEXTS, description="How many texts. The first has the seed.")
    best_of: int | None = Field(None, description="Only 1, or the value of `n`.")
    stop: Stops = Field(None, description="The text ends before the first of these strings.")
    ignore_eos: bool | None = Field(None, description="Whether the model never ends a text.")
    prediction: Prediction | None = Field(None, description="What the text may be: draft tokens are taken from it.")
    speculative: Drafting = None
    token_details: Literal["sources", "decisions"] | None = Field(
        None,
        description="What is told of each token: where it came from, or also why it was committed, with its "
        "probability and the draft token. Default: nothing.",
    )
    response_format: ResponseFormat | None = Field(
        None, description="A free text, any object of JSON, or JSON under a schema."
    )
    structured_outputs: StructuredOutputs | None = Field(None, description="What the text keeps to, as vLLM names it.")
    stream: Streams = None
    stream_options: StreamOptions | None = Field(None, description="Has an effect with `stream` only.")

    @model_validator(mode="after")
    def _one_grammar(self) -> "GenerationRequest":
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
    def _streamed(self) -> "GenerationRequest":
        if self.include_usage and not self.stream:
            take_hint("stream_options", "only with stream")
        if self.best_of not in (None, 1, self.choices):
            raise ValueError("best_of: not supported: leave it out, or send the value of n")
        if self.min_tokens and self.limit is not None and self.min_tokens > self.limit:
            raise ValueError(f"min_tokens: {self.min_tokens} is more than max_tokens, {self.limit}: raise max_tokens")
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
        if given.get("top_p") == 0:
            given |= {"temperature": 0.0, "top_p": 1.0}
        given["explain"] = self.token_details == "decisions"
        if self.ignore_eos:
            given["min_tokens"] = MOST_MIN_TOKENS
        seeds = (
            secrets.randbelow(gumbel.SEED_LIMIT) if self.seed is None else seed_of(self.seed, choice)
            for choice in range(self.choices)
        )
        return [TextSpec(**given | {"seed": seed}) for seed in seeds]
