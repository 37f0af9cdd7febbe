"""What the endpoints need of a source of texts: a request with token ids, the tokens as they are committed; and how
the texts of one request are read at the same time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

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
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.draft import DraftSource
from specpair.speculation.sampling.distribution import TokenLogprobs
from specpair.speculation.text_options import TextSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One text to generate.

    `spec`        its options, with a seed
    `prediction`  token ids of what the client expects the text to be; None: nothing
    `identity`    `Target.identity` of the target that the prompt was made for
    `speculative` who drafts, and how much
    """

    prompt_ids: list[int]
    spec: TextSpec
    prediction: list[int] | None = None
    identity: str = ""
    speculative: Speculative = field(default_factory=Speculative)


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Newly committed tokens, and lists with one entry for each, None where it is not known.

    `logprobs`  if requested
    `sources`   where each came from
    `decisions` why each was committed, if requested
    `drafted`   where the draft token came from that was judged at its place
    """

    tokens: list[int]
    logprobs: Sequence[TokenLogprobs | None] | None = None
    sources: Sequence[TokenSource | None] | None = None
    decisions: Sequence[Decision | None] | None = None
    drafted: Sequence[DraftSource | None] | None = None


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
        """Those of the text so far."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were not read, as the KV cache of another text had them."""

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
        """What `parse` makes of the body of a request, within limits of size and time."""

    def target(self) -> Target:
        """The target model. Raises an error while there is none."""

    async def encoding(self, work: Callable[[Vocabulary], T]) -> T:
        """The result of `work`, which encodes text, in a thread: that may take long, or ask another machine."""

    async def tokenize(self, request: TokenizeRequest) -> list[int]:
        """The token ids of a text or of parts, which may be longer than the context, within reason."""

    async def compile_grammar(self, spec: TextSpec, caller: Caller) -> None:
        """Compile the grammar of a text, if it has one, before the text takes a place. Raises what is wrong with it."""

    async def open(self, text: TextRequest, caller: Caller) -> Events:
        """A text that has not begun. Raises what is wrong with the request.

        The text has to be closed.
        """

    def wait_over(self, waited: float) -> SpecPairError | None:
        """Why a text that has waited `waited` seconds for its place should wait no longer; None: it may."""

    def away(self) -> str:
        """In words, that the verifier behind this service is away, for how long, and why; empty: it is there."""

    def most_texts(self) -> int:
        """How many texts are generated at a time."""

    def most_waiting(self) -> int:
        """How many others may wait."""


_ENDING: set[asyncio.Task[None]] = set()  # the event loop alone would not keep these tasks alive


class RunningTexts:
    """Reads several texts at once, each in a task. Use it with `async with`.

    When the block is left, the texts are told to end. Nobody waits for that: the pass of a text may be under way, and
    the reply is complete without it.
    """

    def __init__(self, texts: Sequence[Events]) -> None:
        self._texts = texts
        self._queue: asyncio.Queue[tuple[int, NewTokens | End | Exception]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: set[int] = set()

    async def __aenter__(self) -> "RunningTexts":
        self._tasks = [asyncio.create_task(self._read(at, text)) for at, text in enumerate(self._texts)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for at in range(len(self._tasks)):
            self.end(at)

    async def next(self, patience: float) -> tuple[int, NewTokens | End] | None:
        """The next event and which text it belongs to; None after `patience` seconds without one.

        Raises the error with which a text ended.
        """
        if self._queue.empty():
            try:
                async with asyncio.timeout(patience):
                    at, event = await self._queue.get()
            except TimeoutError:
                return None
        else:
            at, event = self._queue.get_nowait()
        if isinstance(event, Exception):
            raise event
        return at, event

    def end(self, at: int) -> None:
        """Tell one text to end. What it has brought and was not read may still come."""
        if at not in self._ended:
            self._ended.add(at)
            self._tasks[at].cancel()
            ending = asyncio.create_task(self._close(at))
            _ENDING.add(ending)
            ending.add_done_callback(_ENDING.discard)

    async def _close(self, at: int) -> None:
        await asyncio.gather(self._tasks[at], return_exceptions=True)  # `_read` has reported its error
        await self._texts[at].aclose()

    async def _read(self, at: int, text: Events) -> None:
        try:
            async for event in text:
                self._queue.put_nowait((at, event))
        except Exception as error:
            self._queue.put_nowait((at, error))
