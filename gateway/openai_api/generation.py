"""Generates the texts of one request: reads their tokens, and passes the new text to a writer of the reply."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType

from starlette.responses import Response

from gateway.openai_api.answer import PLAIN, AnswerForm, AnswerReason
from gateway.openai_api.messages import replies
from gateway.openai_api.messages.replies import Reply
from gateway.openai_api.messages.requests import Names, in_terms_of, renamed
from gateway.openai_api.output import ChoiceText, Delta
from gateway.openai_api.text_queue import QueuedText, RunningTexts
from gateway.openai_api.texts import End
from gateway.openai_api.tools.reader import Thought
from specpair.engines.vocabulary import Vocabulary
from specpair.http_service.replies.events import HEARTBEAT, EventStream, comment
from specpair.http_service.replies.json_replies import JsonReply
from specpair.numbers import milliseconds
from specpair.protocol.errors import InvalidRequest, SpecPairError, TargetChanged
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.round_counts import RoundCounts


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """How a request's texts are written."""

    model: str
    vocabulary: Vocabulary
    stops: Sequence[str]
    prompt_tokens: int  # of all prompts, each counted once
    choices: int = 1  # of each prompt
    prefixes: Sequence[str] = ()  # what each text begins with (`echo`); none: nothing
    answer: AnswerForm = PLAIN  # how the texts are read
    thoughts: bool = True  # whether the reply has them
    # How an error of their grammar is told, where that is one of calls, which the request did not name.
    of_calls: Callable[[InvalidRequest], InvalidRequest] | None = None
    away: Callable[[], str] = str  # `TextSource.away`


class TextGeneration:
    """The texts of one request as they grow, and their statistics.

    `open`: how many have not ended.
    """

    def __init__(self, spec: GenerationSpec, texts: Sequence[QueuedText], began: float) -> None:
        """`began`: when the request came, of `time.monotonic`."""
        self.spec, self.texts, self._began = spec, texts, began
        self._events = [text.events for text in texts]
        self._outputs = [ChoiceText(spec.vocabulary, spec.stops, spec.answer) for _ in texts]
        self._first: float | None = None  # when the first token came
        self._away = 0.0  # `_outage_time` by then
        self.open = len(texts)

    @property
    def stop_string(self) -> str | None:
        """The stop string that has ended the first text; None: none has."""
        return self._outputs[0].stop_string

    @property
    def silence(self) -> bytes:
        """A comment for a silent stream: that the verifier is away, or how much of the prompts is read."""
        return comment(self._prompt_progress, self.spec.away())

    @property
    def _prompt_progress(self) -> PromptProgress | None:
        """How much of the prompts is read, of all those that are being read; None: all is read."""
        unread = [progress for text in self._events if (progress := text.prompt_progress) is not None]
        return PromptProgress(sum(each.read for each in unread), sum(each.of for each in unread)) if unread else None

    async def deltas(self, running: RunningTexts) -> AsyncIterator[tuple[int, Delta | None, AnswerReason | None]]:
        """Yield a choice, its new part, and with its last part why it ended. None: silence."""
        done = [False] * len(self.texts)
        while self.open:
            try:
                found = await running.next(HEARTBEAT)
            except InvalidRequest as error:
                raise error if self.spec.of_calls is None else self.spec.of_calls(error) from None
            if found is None:
                yield 0, None, None
                continue
            at, event = found
            if done[at]:
                continue  # it came after a stop string
            output = self._outputs[at]
            reason: AnswerReason | None = None
            if isinstance(event, End):
                delta = output.end()
                reason = output.reason(event.finish_reason)
            else:
                if self._first is None:
                    self._first, self._away = time.monotonic(), self._outage_time
                delta = output.take(event)
                if output.stopped:
                    reason = output.reason("stop")
                    self._events[at].stopped()
            if not self.spec.thoughts:
                delta = replace(delta, events=[each for each in delta.events if not isinstance(each, Thought)])
            if reason is not None:
                running.end(at)  # so that its place is free: another text of this request may wait for it
                done[at] = True
                self.open -= 1
            yield at, delta, reason

    @property
    def _cached_tokens(self) -> int:
        """Tokens of the prompts, each counted once, that no choice of the prompt had to read."""
        cached, choices = [text.cached_tokens for text in self._events], self.spec.choices
        return sum(min(cached[at : at + choices]) for at in range(0, len(cached), choices))

    @property
    def _outage_time(self) -> float:
        """Seconds that the verifier was away so far, which no speed includes."""
        return max(each.outage_time for each in self._counts)

    @property
    def _generated(self) -> int:
        """Tokens."""
        return sum(output.count for output in self._outputs)

    @property
    def _counts(self) -> list[RoundCounts]:
        return [text.counts for text in self._events]

    def usage(self) -> replies.TokenUsage:
        counts, generated = self._counts, self._generated
        return replies.TokenUsage(
            prompt_tokens=self.spec.prompt_tokens,
            completion_tokens=generated,
            total_tokens=self.spec.prompt_tokens + generated,
            prompt_tokens_details=replies.PromptTokensDetails(cached_tokens=self._cached_tokens),
            completion_tokens_details=replies.CompletionTokensDetails(
                reasoning_tokens=sum(output.reasoning_count for output in self._outputs),
                accepted_prediction_tokens=sum(each.prediction_accepted for each in counts),
                rejected_prediction_tokens=sum(each.prediction_rejected for each in counts),
            ),
        )

    def statistics(self) -> dict[str, Reply]:
        told: dict[str, Reply] = {"timings": self._timings(), "spec_decode": self._spec_decode()}
        return told | ({"metrics": _metrics(self._counts[0])} if len(self.texts) == 1 else {})

    def _timings(self) -> replies.Timings:
        now, generated = time.monotonic(), self._generated
        first = now if self._first is None else self._first
        away = self._outage_time - self._away
        prompt, predicted = first - self._began - self._outage_time + away, now - first - away
        counts, cached = self._counts, self._cached_tokens
        read = self.spec.prompt_tokens - cached
        return replies.Timings(
            cache_n=cached,
            prompt_n=read,
            prompt_ms=milliseconds(prompt),
            prompt_per_second=_rate(read, prompt),
            predicted_n=generated,
            predicted_ms=milliseconds(predicted),
            predicted_per_token_ms=milliseconds(predicted / generated) if generated else None,
            predicted_per_second=_rate(generated, predicted),
            draft_n=sum(each.drafted for each in counts),
            draft_n_accepted=sum(each.accepted for each in counts),
        )

    def _spec_decode(self) -> replies.SpecDecode:
        counts = self._counts
        return replies.SpecDecode(
            num_drafts=sum(each.drafts_judged for each in counts),
            num_draft_tokens=sum(each.drafted for each in counts),
            num_accepted_tokens=sum(each.accepted for each in counts),
            num_accepted_tokens_per_pos=[
                sum(each) for each in zip_longest(*(each.accepted_per_position for each in counts), fillvalue=0)
            ],
        )


def _metrics(counts: RoundCounts) -> replies.Metrics:
    histogram = counts.acceptance_histogram  # the others follow from it, as the text may be going on
    drafts, accepted = sum(histogram), sum(at * count for at, count in enumerate(histogram))
    return replies.Metrics(
        speculative_decoding=replies.SpeculativeDecoding(
            mean_acceptance_length=1.0 + accepted / max(1, drafts),
            draft_acceptance_rate=accepted / max(1, counts.drafted),
            acceptance_histogram=histogram,
            num_spec_steps=drafts,
            num_accepted_draft_tokens=accepted,
            num_draft_tokens=counts.drafted,
            num_spec_tokens=len(histogram) - 1,
        )
    )


def _rate(count: int, seconds: float) -> float | None:
    """Per second; None without a time."""
    return round(count / seconds, 3) if seconds > 0.0 else None


class Writer(ABC):
    """Writes the reply to one request, whole or as the events of a stream.

    `generation`: the texts; others, should the target change before a token was sent.
    """

    def __init__(self, generation: TextGeneration) -> None:
        self.generation = generation

    @abstractmethod
    def begin(self) -> Iterable[bytes]:
        """The events before the first token."""

    def silent(self) -> Iterable[bytes]:
        """Events sent with a comment after a silence, for readers that ignore comments."""
        return ()

    @abstractmethod
    def take(self, at: int, delta: Delta, reason: AnswerReason | None) -> Iterable[bytes]:
        """The events for a new part of text `at`. `reason`: why the text ended with it."""

    @abstractmethod
    def end(self) -> Iterable[bytes]:
        """The events behind the last token."""

    @abstractmethod
    def failed(self, error: SpecPairError) -> Iterable[bytes]:
        """The events that report an error."""

    @abstractmethod
    def keep(self, at: int, delta: Delta, reason: AnswerReason | None) -> None:
        """Keep a new part of text `at` for a whole reply."""

    @abstractmethod
    def whole(self) -> Reply:
        """The whole reply, of kept parts."""


MakeTexts = Callable[[], Awaitable[TextGeneration]]  # opens the texts of a request for the present target


async def reply_to(
    stream: bool, make: MakeTexts, new: Callable[[TextGeneration], Writer], names: Names = MappingProxyType({})
) -> Response:
    """The reply to a request: JSON, or server-sent events with `stream`.

    `new`: makes its writer.
    `names`: of parameters in the request, where errors have others.

    Raises the SpecPairError of a text.
    """
    with in_terms_of(names):
        generation = await make()
        if stream:
            return EventStream(events(generation, make, new(generation), names))
        try:
            return await _whole(generation, new(generation))
        except TargetChanged as error:
            generation = await _anew(make, error)
            return await _whole(generation, new(generation))


async def _whole(generation: TextGeneration, writer: Writer) -> Response:
    async with RunningTexts(generation.texts) as running:
        async for at, delta, reason in generation.deltas(running):
            if delta is not None:
                writer.keep(at, delta, reason)
    return JsonReply(writer.whole().json_bytes())


async def events(
    generation: TextGeneration, make: MakeTexts, writer: Writer, names: Names = MappingProxyType({})
) -> AsyncIterator[bytes]:
    """The events of a stream. An error of a text is its last one."""
    begun = changed = sent = False
    try:
        while True:
            try:
                async with RunningTexts(generation.texts) as running:  # before the first event: its reader may hang up
                    for event in () if begun else writer.begin():
                        yield event
                    begun = True
                    async for at, delta, reason in generation.deltas(running):
                        if delta is None:
                            yield generation.silence
                        for event in writer.silent() if delta is None else writer.take(at, delta, reason):
                            sent = sent or delta is not None
                            yield event
                break
            except TargetChanged as error:
                if sent or changed:
                    raise
                generation = writer.generation = await _anew(make, error)
                changed = True
    except SpecPairError as error:
        for event in writer.failed(renamed(error, names)):
            yield event
        return
    for event in writer.end():
        yield event


async def _anew(make: MakeTexts, error: TargetChanged) -> TextGeneration:
    """Open the texts for the present target. Raises `error`, with which the texts ended, if the request does not
    fit it."""
    try:
        return await make()
    except SpecPairError:
        raise error from None
