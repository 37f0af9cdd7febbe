"""The base of the response models, the types of their fields, and parts that several models share."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    create_model,
)
from pydantic_core import CoreSchema

from specpair.numbers import seconds
from specpair.options.option import options_of
from specpair.options.request_fields import request_fields
from specpair.protocol.terminal_text import one_line
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.acceptance.token_sources import PATTERN, TokenMark, joined, split
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import TokenLogprobs
from specpair.speculation.sampling.grammar import GRAMMARS
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec

Count = Annotated[int, Field(ge=0, le=2**53)]  # larger ones are not exact as floats
Tokens = Annotated[list[Count], Field(fail_fast=True, description="Token ids.")]
CachedTokens = Annotated[
    Count, Field(description="Tokens of the prompt that were not read, as the KV cache of another text had them.")
]
Position = Annotated[
    Count, Field(description="How many tokens, the prompt's included, come before the first of `tokens`.")
]
PromptLength = Annotated[Count, Field(ge=1, description="Tokens of the prompt, the begin token included.")]
TotalTokens = Annotated[Count, Field(ge=1, description="Committed tokens, the prompt's included.")]
Milliseconds = Annotated[float, Field(ge=0.0, le=1e9)]  # at most about eleven days
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, Field(max_length=1000), AfterValidator(one_line)]  # safe on a terminal
Model = Annotated[Name, Field(description="Name of the target model.")]
Noise = Annotated[Name, Field(description="Name of the shared noise; both ends must have the same.")]
Identity = Annotated[
    Annotated[str, Field(max_length=100)],
    Field(
        description="Two hashes. The first changes with whatever defines a text: model, vocabulary, logit processors, "
        "noise. The second changes with what else is served: context, slots, chat template, modes."
    ),
]
Reason = Annotated[str, AfterValidator(one_line)]
FinishReason = Literal["stop", "length"]  # an end token; the limit, or the context is full
Ended = Annotated[FinishReason, Field(description="stop: an end token; length: the limit, or the context is full.")]
STOP_STRING = "stop_string"  # what statistics and logs say in place of "stop" if a stop string ended the text
OrNotYet = Annotated[FinishReason | None, Field(description="Why the text has ended; null until it has.")]


def _of_object(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    schema = handler(source)
    cast(dict[str, Any], handler.resolve_ref_schema(schema))["strict"] = False
    return schema


# Lets a strict model make a dataclass of an object of JSON that was parsed before. The dataclass's fields stay strict.
FROM_OBJECT = GetPydanticSchema(_of_object)


def _marks(given: Any) -> list[TokenMark]:
    if isinstance(given, str):
        return split(given)
    if not isinstance(given, list) or not all(isinstance(each, TokenMark) for each in given):
        raise ValueError("should be a text, a letter for each token")
    return given


Sources = Annotated[
    list[TokenMark],
    PlainValidator(_marks),
    PlainSerializer(joined),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "examples": ["aab"]}),
    Field(
        description="Where each token came from, a letter each. a: an accepted draft token; r: recovered, in place of "
        "a rejected one; b: bonus, after the draft or without one; t: target-decoded, by self-continuation; -: it came "
        "with the request. An x behind a letter: a further draft token that the same pass judged, in vain."
    ),
]
Decisions = Annotated[
    list[Annotated[Decision, FROM_OBJECT] | None] | None,
    Field(
        fail_fast=True,
        description="One for each token, where `explain` was asked for; null for tokens of an earlier request.",
    ),
]
Logprobs = Annotated[
    list[Annotated[TokenLogprobs, FROM_OBJECT] | None] | None,
    Field(
        fail_fast=True,
        description="One for each token, where `logprobs` was asked for; null for tokens of an earlier request. Of the "
        "target's distribution at temperature 1, before processors and filters.",
    ),
]


class Response(BaseModel):
    """Base of all responses. A field that has a default is left out of the JSON where it has that value."""

    model_config = ConfigDict(
        frozen=True, strict=True, allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )

    def body(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True).encode()


class Timing(Response):
    """Times of the request on the verifier."""

    queue_ms: Annotated[Milliseconds, Field(description="The wait for a forward pass.")]
    forward_ms: Annotated[Milliseconds, Field(description="The passes that ran this request; 0: none did.")]
    sessions: Annotated[Count, Field(description="Sessions that shared the last of these passes.")]
    tokens: Annotated[Count, Field(description="Tokens that it ran over, of all sessions; 0: not known.")] = 0


class TimedResponse(Response):
    """Base of the responses that have a `timing`."""

    if TYPE_CHECKING:
        timing: Timing

    @property
    def queue(self) -> float:
        """Seconds that the request waited for a forward pass."""
        return seconds(self.timing.queue_ms)

    @property
    def forward(self) -> float:
        """Seconds of the passes that ran the request."""
        return seconds(self.timing.forward_ms)


_OF_SAMPLING = tuple(name for name in options_of(Sampling) if name not in GRAMMARS)  # which are long, and known
_REPORTED = (*_OF_SAMPLING, "strategy", "threshold")
if TYPE_CHECKING:

    class _WithSampling(Response):
        seed: int

else:
    _WithSampling = create_model(
        "_WithSampling",
        __base__=Response,
        **request_fields(Sampling, _OF_SAMPLING, required=("seed", "temperature", "top_k", "top_p")),
        **request_fields(TextSpec, ("strategy", "threshold"), required=("strategy",)),
    )


class SamplingReport(_WithSampling):
    """The sampling settings of the target. A grammar is not repeated."""

    noise: Noise

    @classmethod
    def of(cls, spec: TextSpec) -> "SamplingReport":
        """The report of a text's options with its final seed."""
        options = options_of(TextSpec)
        return cls(noise=gumbel.NAME, **{name: options[name].to_json(getattr(spec, name)) for name in _REPORTED})

    def settings(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)
