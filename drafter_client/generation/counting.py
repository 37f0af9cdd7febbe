"""The listener that fills the statistics of a text."""

from drafter_client.generation import events
from drafter_client.http.text_session import TextSession
from drafter_client.options import Mode
from drafter_client.statistics import DRAFTING, PREFILL, SOLO, VERIFY, Stats, Turn, exchange
from specpair.speculation.draft import DraftSource
from specpair.speculation.drafting.composed_context import ContextRead

_TIMED_MODES = (Mode.TARGET, Mode.FUSED, SOLO)  # in which the statistics have the time of each token


class StatsCounter:
    """Fills `Stats`. In mode `auto`, each stretch is also counted by itself, as the waiting times depend
    on the stretch's mode."""

    def __init__(self, stats: Stats, text: TextSession | None = None) -> None:
        """`text`: whose tokens behind a stop string are left out at its end; None: a stretch of a text."""
        self._stats, self._text = stats, text
        self._begun = False
        self._attempt = 0.0  # seconds on the run's clock: the begin of the last attempt
        self._last = 0.0  # and when the last tokens came, or the text began
        self._stretch: StatsCounter | None = None  # in mode auto

    def take(self, event: events.RunEvent, now: float) -> None:
        stats = self._stats
        if isinstance(event, events.ModeChosen):
            self._choose(event)
        if self._stretch is not None:
            self._stretch.take(event, now)
        match event:  # the most frequent ones first
            case events.Drafted():
                stats.times.drafting += event.took
                stats.draft_steps.append(event.took)
                stats.spans.append((DRAFTING, now - event.took, now))
            case events.Sent():
                stats.drafts_sent += 1
            case events.Answered(in_flight_draft, response):
                stats.times.verify += response.forward
                self._exchanged(VERIFY, in_flight_draft.sent_at, now, response.queue, response.forward)
            case events.Streamed():
                if event.forward is not None:
                    stats.spans.append((VERIFY, now - event.forward, now))
            case events.Committed():
                self._count_tokens(event, now)
            case events.Began():
                self._attempt = now
                if not self._begun:
                    self._begun, self._last = True, now
                    stats.began, stats.prompt_tokens = now, event.prompt_tokens
            case events.PromptRead(progress):
                stats.prompt_progress = progress
            case events.PromptCached(tokens):
                if not stats.token_ids:  # else it is about a resumption
                    stats.cached_tokens = tokens
            case events.Opened(response, asked):
                stats.sampling = response.sampling.settings()
                stats.times.prefill += response.forward
                self._exchanged(PREFILL, asked, now, response.queue, response.forward)
            case events.Served():
                self._count_served(event, now)
            case events.VerifierTaken(address):
                if stats.verifiers[-1:] != [address]:
                    stats.verifiers.append(address)
            case events.ModelTaken(model, context):
                stats.model, stats.context = model, context
            case events.Waited(seconds, first):
                stats.outages += first
                stats.outage_time += seconds
                self._last += seconds
            case events.Resumed(generated):
                stats.resumed.append(generated)
            case events.DraftContextRead(context):
                stats.draft_context = context
            case events.DraftingFailed(reason):
                stats.draft_failure = reason
            case events.Ended():
                stats.total_time, stats.finish_reason = now - stats.began, event.finish_reason
                stats.bytes_sent += event.bytes_sent
                stats.bytes_received += event.bytes_received
                stats.why = event.why
                if self._text is not None and self._text.stopped_at is not None:
                    stats.cut(self._text.stopped_at)
                if self._stretch is not None:
                    stretch = self._stretch._stats
                    stats.turns[-1], stats.stretches[-1] = Turn(stretch.mode, stretch.generated_tokens), stretch.waits()

    def _choose(self, event: events.ModeChosen) -> None:
        stats = self._stats
        stats.draft_model, stats.looks_up = stats.draft_model or event.draft_model, event.looks_up
        if stats.mode == Mode.AUTO:
            stretch = Stats(mode=event.mode)
            stats.turns.append(Turn(event.mode, 0))
            stats.stretches.append(stretch.waits())
            self._stretch = StatsCounter(stretch)
        else:
            stats.mode = event.mode

    def _exchanged(self, part: str, sent: float, now: float, queue: float, forward: float) -> None:
        """Count the times of a request but for its pass, and what the text waited for."""
        times = self._stats.times
        times.queue += queue
        times.network += max(0.0, now - sent - queue - forward)
        self._stats.spans += exchange(part, sent, now, queue, forward)

    def _count_tokens(self, event: events.Committed, now: float) -> None:
        stats, count = self._stats, len(event.tokens)
        stats.prompt_progress = None
        if count and not stats.token_ids:
            stats.ttft = now - stats.began - stats.outage_time
            if stats.mode == SOLO:
                stats.times.prefill = stats.ttft
        if count and stats.mode in _TIMED_MODES:
            stats.token_times += [now - self._last, *[0.0] * (count - 1)]
            self._last = now
        stats.add(event.tokens, event.details)
        stats.mispredicted += event.mispredicted
        stats.next_draft_ready += event.next_draft_ready
        if event.schedule is not None:
            stats.schedules[event.schedule] += count
        for each in event.rounds:
            stats.count(each.drafted_by(DraftSource.LOOKUP) if stats.looks_up else each)
        if stats.mode == Mode.FUSED:
            stats.drafts_sent += len(event.rounds)

    def _count_served(self, event: events.Served, now: float) -> None:
        """Take over the verifier's summary of a text that it generated. All times that it does not report are the
        network's; without a summary that is the whole time of the request."""
        stats, summary = self._stats, event.summary
        took = now - self._attempt
        if summary is None:
            stats.times.network += took
            return
        stats.times.network += max(0.0, took - summary.queue - summary.forward - summary.drafting)
        stats.sampling = summary.sampling.settings()
        stats.times.queue += summary.queue
        stats.times.verify += summary.forward
        speculation = summary.speculation
        if speculation is not None:
            stats.draft_model = stats.draft_model or summary.draft_model or ""
            stats.draft_failure = speculation.draft_failure or stats.draft_failure
            stats.times.drafting += summary.drafting
            if (context := speculation.draft_context) is not None:
                stats.draft_context = ContextRead(context.sink, context.pieces, context.window, context.of)
            predicted = "prediction_accepted", "prediction_rejected"
            others = "looked_up", "looked_up_accepted", "by_head", "by_head_accepted", "from_grammar"
            for name in (*others, *predicted):
                setattr(stats, name, getattr(stats, name) + (getattr(speculation, name) or 0))
