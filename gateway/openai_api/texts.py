"""Interface of a source of texts: a request with token ids, and the tokens as they are committed."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from gateway.openai_api.messages.options import Speculative
from specpair.engines.vocabulary import Vocabulary
from specpair.http_service.keys.access import Caller
from specpair.protocol.errors import SpecPairError
from specpair.protocol.messages import TokenizeRequest
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.response_fields import FinishReason
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.acceptance.round_counts import RoundCounts
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.draft import DraftSource
from specpair.speculation.sampling.distribution import TokenLogprobs
from specpair.speculation.text_options import TextSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One text to generate."""

    prompt_ids: list[int]
    spec: TextSpec  # its options, with a seed
    prediction: list[int] | None = None  # token ids of what the client expects the text to be; None: nothing
    identity: str = ""  # `Target.identity` of the target that the prompt was made for
    speculative: Speculative = field(default_factory=Speculative)  # who drafts, and how much


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Newly committed tokens, and lists with one entry for each, None where it is not known."""

    tokens: list[int]
    logprobs: Sequence[TokenLogprobs | None] | None = None  # if requested
    sources: Sequence[TokenSource | None] | None = None  # where each came from
    decisions: Sequence[Decision | None] | None = None  # why each was committed, if requested
    drafted: Sequence[DraftSource | None] | None = None  # where the draft token came from that was judged at its place

    @property
    def about(self) -> list[Sequence[Any]]:
        """The lists."""
        unknown = [None] * len(self.tokens)
        return [each or unknown for each in (self.logprobs, self.sources, self.decisions, self.drafted)]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a text: always the last event."""

    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Target:
    """The target model, whose texts are served."""

    name: str
    vocabulary: Vocabulary
    context_length: int  # tokens
    max_drafts: int  # draft tokens that it judges at once
    chat_template: str | None  # in Jinja; None: the model has none
    identity: str = ""  # changes with the model; empty: it cannot change


class Events(Protocol):
    """The events of one text. Iterating raises the SpecPairError that ends it early."""

    @property
    def counts(self) -> RoundCounts:
        """Rounds of the text so far."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were in the KV cache of another text."""

    @property
    def prompt_progress(self) -> PromptProgress | None:
        """How much of its prompt is read; None: all of it, or that is not known."""

    def begin(self) -> None:
        """Begin to generate, if it has not begun."""

    def __aiter__(self) -> AsyncIterator[NewTokens | End]:
        """The events. Awaiting the first one begins the text, too."""

    def stopped(self) -> None:
        """Note that a stop string has ended the text, which is closed next."""

    async def aclose(self) -> None:
        """End the text, at once and also if it was not iterated. May be called again."""


class TextSource(Protocol):
    """A source of texts, and the HTTP service in front of it. Its methods raise SpecPairError."""

    def admit(self, request: Request) -> Caller:
        """The caller of a request. Raises an error if it may not use the service."""

    async def read(self, request: Request, parse: Callable[[bytes], T]) -> T:
        """The request's body, read by `parse` within limits of size and time."""

    def target(self) -> Target:
        """The target model. Raises an error while there is none."""

    async def encoding(self, work: Callable[[Vocabulary], T]) -> T:
        """Run `work`, which encodes text, in a thread: `work` may take long, or ask another machine."""

    async def tokenize(self, request: TokenizeRequest) -> list[int]:
        """The token ids of a text or of parts, which may be longer than the context, within reason."""

    async def compile_grammar(self, spec: TextSpec, caller: Caller) -> None:
        """Compile the grammar of a text, if it has one, before the text takes a slot. Raises the grammar's error."""

    async def open(self, text: TextRequest, caller: Caller) -> Events:
        """A text that has not begun. Raises what is wrong with the request.

        The text has to be closed.
        """

    def wait_over(self, waited: float) -> SpecPairError | None:
        """The error of a text that may not wait longer than `waited` seconds; None: it may."""

    def away(self) -> str:
        """Message that the verifier behind this service is away, how long, and why; empty: it is there."""

    def most_texts(self) -> int:
        """How many texts are generated at a time."""

    def most_waiting(self) -> int:
        """How many others may wait."""
