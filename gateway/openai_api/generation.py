"""One request for texts: its choices as they grow, and the replies that are made of them."""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from gateway.openai_api.answers.answer import PLAIN, AnswerForm, AnswerReason
from gateway.openai_api.messages.errors import FORM
from gateway.openai_api.messages.formats import Format
from gateway.openai_api.messages.replies import (
    CompletionTokensDetails,
    Metrics,
    PromptTokensDetails,
    Reply,
    SpecDecode,
    SpeculativeDecoding,
    Timings,
    Usage,
    rate,
)
from gateway.openai_api.output import Delta, Output, joined
from gateway.openai_api.running import Running
from gateway.openai_api.texts import End, Events
from specpair.engines.vocabulary import Vocabulary
from specpair.http_service.replies.events import HEARTBEAT, comment, event_bytes
from specpair.protocol.errors import InvalidRequest, SpecPairError, TargetChanged
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.times import milliseconds
from specpair.speculation.acceptance.round_counts import RoundCounts

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Order:
    """What a request wants of its texts, and how its replies are written."""

    format: Format
    model: str
    vocabulary: Vocabulary
    stops: Sequence[str]
    prompt_tokens: int  # of all prompts, each counted once
    choices: int  # of each prompt
    include_usage: bool
    continuous_usage: bool  # in each chunk
    answer: AnswerForm = PLAIN  # how the texts are read
    # How an error of their grammar is told, where that is one of calls, which the request did not name.
    of_calls: Callable[[InvalidRequest], InvalidRequest] | None = None
    away: Callable[[], str] = str  # `TextSource.away`


class Choices:
    """Generates the texts of one request, and makes its reply or its chunks."""

    def __init__(self, order: Order, texts: Sequence[Events], began: float, created: int) -> None:
        """`began`: when the request came, of `time.monotonic`.
        `created`: the time in seconds since 1970.
        """
        self._order, self._texts, self._began = order, texts, began
        self._outputs = [Output(order.vocabulary, order.stops, order.answer) for _ in texts]
        self._common = {
            "id": order.format.id_prefix + uuid.uuid4().hex,
            "created": created,
            "model": order.model,
        }
        self._first: float | None = None  # when the first token came
        self._open = len(texts)  # texts that have not ended

    async def whole(self, again: "MakeTexts") -> Reply:
        """The reply, when all texts have ended.

        `again`: makes the texts anew, should the target change before.

        Raises the SpecPairError of a text.
        """
        try:
            return await self._whole()
        except TargetChanged as error:
            return await (await anew(again, error))._whole()

    async def _whole(self) -> Reply:
        parts: list[list[Delta]] = [[] for _ in self._texts]
        reasons: list[AnswerReason] = ["length"] * len(parts)
        async with Running(self._texts) as running:
            async for at, delta, reason in self._deltas(running):
                if delta is not None:
                    parts[at].append(delta)
                if reason is not None:
                    reasons[at] = reason
        ended = {"usage": self._usage()} | self._statistics()
        return self._order.format.whole(self._common | ended, list(zip(map(joined, parts), reasons, strict=True)))

    async def events(self, again: "MakeTexts") -> AsyncIterator[bytes]:
        """The server-sent events of a stream: its chunks. An error of a text is its last event.

        `again`: as for `chunks`.
        """
        try:
            async with aclosing(self.chunks(again)) as chunks:
                async for chunk in chunks:
                    yield self.silence if chunk is None else event_bytes(chunk.json_bytes())
        except SpecPairError as error:
            yield FORM.last_event(error)
            return
        yield DONE

    async def chunks(self, again: "MakeTexts | None" = None) -> AsyncGenerator[Reply | None]:
        """The chunks of a stream; None: silence.

        `again`: makes the texts anew, should the target change before a token was sent; None: the stream has begun with
        texts for another target.

        Raises the SpecPairError of a text.
        """
        sent = False
        form, common, usage = self._order.format, self._common, self._order.include_usage
        if usage:
            common = common | {"usage": None}
        try:
            async with Running(self._texts) as running:  # before the first chunk, whose reader may hang up
                for at in range(0 if again is None else len(self._texts)):
                    first = form.begin(common, at)
                    if first is not None:
                        yield first
                async for at, delta, reason in self._deltas(running):
                    if delta is None:
                        yield None
                        continue
                    choices = form.choices(at, delta, reason)
                    for number, choice in enumerate(choices, 1):
                        sent, told = True, dict[str, Reply]()
                        if self._order.continuous_usage:
                            told = {"usage": self._usage()}
                        elif number == len(choices) and not self._open and not usage:
                            told = self._statistics()
                        yield form.chunk(common | told, choice)
        except TargetChanged as error:
            if sent or again is None:
                raise
            texts = await anew(again, error)
            self._texts, self._outputs = texts._texts, texts._outputs  # whose progress is asked for
            texts._common["id"] = self._common["id"]
            async with aclosing(texts.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        if usage:  # in one chunk with the statistics: Open WebUI adds up the tokens of all chunks that count any
            yield form.usage_chunk(self._common | {"usage": self._usage()} | self._statistics())

    @property
    def stop_string(self) -> str | None:
        """The stop string that has ended the first text; None: none has."""
        return self._outputs[0].stop_string

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._order.model

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts, each counted once."""
        return self._order.prompt_tokens

    @property
    def silence(self) -> bytes:
        """A comment for a reader that hears nothing: the verifier is away, or how much of the prompts is read."""
        return comment(self._prompt_progress, self._order.away())

    @property
    def _prompt_progress(self) -> PromptProgress | None:
        """How much of the prompts is read, of all those that are being read; None: all is read."""
        unread = [progress for text in self._texts if (progress := text.prompt_progress) is not None]
        return PromptProgress(sum(each.read for each in unread), sum(each.of for each in unread)) if unread else None

    async def _deltas(self, running: Running) -> AsyncIterator[tuple[int, Delta | None, AnswerReason | None]]:
        """What the choices grow by: the choice, and with its last part why it ended. None: silence."""
        done = [False] * len(self._texts)
        while self._open:
            try:
                found = await running.next(HEARTBEAT)
            except InvalidRequest as error:
                raise error if self._order.of_calls is None else self._order.of_calls(error) from None
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
                self._first = time.monotonic() if self._first is None else self._first
                delta = output.take(event)
                if output.stopped:
                    reason = output.reason("stop")
                    self._texts[at].stopped()
            if reason is not None:
                running.end(at)  # so that its place is free: another text of this request may wait for it
                done[at] = True
                self._open -= 1
            yield at, delta, reason

    @property
    def _cached_tokens(self) -> int:
        """Tokens of the prompts, each counted once, that no choice of the prompt had to read."""
        cached, choices = [text.cached_tokens for text in self._texts], self._order.choices
        return sum(min(cached[at : at + choices]) for at in range(0, len(cached), choices))

    def _usage(self) -> Usage:
        counts = [text.counts for text in self._texts]
        generated = sum(output.count for output in self._outputs)
        return Usage(
            prompt_tokens=self._order.prompt_tokens,
            completion_tokens=generated,
            total_tokens=self._order.prompt_tokens + generated,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._cached_tokens),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=sum(output.reasoning_count for output in self._outputs),
                accepted_prediction_tokens=sum(each.prediction_accepted for each in counts),
                rejected_prediction_tokens=sum(each.prediction_rejected for each in counts),
            ),
        )

    def _statistics(self) -> dict[str, Reply]:
        told: dict[str, Reply] = {"timings": self._timings(), "spec_decode": self._spec_decode()}
        return told | ({"metrics": _metrics(self._texts[0].counts)} if len(self._texts) == 1 else {})

    def _timings(self) -> Timings:
        now, generated = time.monotonic(), sum(output.count for output in self._outputs)
        first = now if self._first is None else self._first
        prompt, predicted = first - self._began, now - first
        counts, cached = [text.counts for text in self._texts], self._cached_tokens
        read = self._order.prompt_tokens - cached
        return Timings(
            cache_n=cached,
            prompt_n=read,
            prompt_ms=milliseconds(prompt),
            prompt_per_second=rate(read, prompt),
            predicted_n=generated,
            predicted_ms=milliseconds(predicted),
            predicted_per_token_ms=milliseconds(predicted / generated) if generated else None,
            predicted_per_second=rate(generated, predicted),
            draft_n=sum(each.drafted for each in counts),
            draft_n_accepted=sum(each.accepted for each in counts),
        )

    def _spec_decode(self) -> SpecDecode:
        counts = [text.counts for text in self._texts]
        depth = max((len(each.accepted_per_position) for each in counts), default=0)
        return SpecDecode(
            num_drafts=sum(each.drafts_judged for each in counts),
            num_draft_tokens=sum(each.drafted for each in counts),
            num_accepted_tokens=sum(each.accepted for each in counts),
            num_accepted_tokens_per_pos=[
                sum(sum(each.accepted_per_position[at : at + 1]) for each in counts) for at in range(depth)
            ],
        )


def _metrics(counts: RoundCounts) -> Metrics:
    histogram = counts.acceptance_histogram  # the others follow from it, as the text may be going on
    drafts, accepted = sum(histogram), sum(at * count for at, count in enumerate(histogram))
    return Metrics(
        speculative_decoding=SpeculativeDecoding(
            mean_acceptance_length=1.0 + accepted / max(1, drafts),
            draft_acceptance_rate=accepted / max(1, counts.drafted),
            acceptance_histogram=histogram,
            num_spec_steps=drafts,
            num_accepted_draft_tokens=accepted,
            num_draft_tokens=counts.drafted,
            num_spec_tokens=len(histogram) - 1,
        )
    )


MakeTexts = Callable[[], Awaitable[Choices]]  # opens the texts of a request for the present target


async def anew(make: MakeTexts, error: TargetChanged) -> Choices:
    """The texts for the target that is there now. Raises `error`, with which they ended, if the request is not for that
    one."""
    try:
        return await make()
    except SpecPairError:
        raise error from None
