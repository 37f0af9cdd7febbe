"""One text of server-side drafting, written from its prefill to its end, alone or in rounds with other texts."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from specpair.corpus.draft_corpus import DraftCorpus
from specpair.corpus.earlier_texts import EarlierTexts
from specpair.drafters.base import Drafter, read_prompt
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.run import events
from specpair.drafters.run.executors import SerialExecutor
from specpair.drafters.run.reactor import JudgedRounds, PlainTranscript, Reactor
from specpair.engines.errors import BackendError
from specpair.grammar.of_text import processors_of
from specpair.numbers import milliseconds
from specpair.protocol.errors import InternalError, SpecPairError
from specpair.protocol.responses import DraftContext, Speculation
from specpair.speculation.acceptance.round_counts import JudgedRound, RoundCounts
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.acceptance.token_sources import forced_before, last_round, passes, rounds
from specpair.speculation.draft import Draft, DraftSource
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.composed_context import ContextRead
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import MAX_AUTO, DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from verifier_server.engine.arrived_drafts import Answer, OnAnswer
from verifier_server.engine.interface import TokenEngine
from verifier_server.generation.draft_model import SharedDraftModel
from verifier_server.generation.engine_client import EngineConnection
from verifier_server.generation.head_drafter import HeadDrafter
from verifier_server.generation.round_policy import RoundText
from verifier_server.generation.round_thread import RoundMember, RoundThread
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.verifier")


@dataclass(slots=True)
class DraftCounts(RoundCounts):
    """Draft statistics of one text. Counted by its thread, read after its last answer."""

    draft_model: str = ""
    predicted: bool = False  # whether the request has a prediction of the text
    drafting: float = 0.0  # seconds spent on draft steps
    context: ContextRead | None = None  # what the draft model had read at its last step; None: there is none
    failure: str | None = None  # why drafting ended before the text did

    def body(self) -> Speculation:
        """The statistics, as in replies."""
        rate, length = self.acceptance_rate, self.mean_acceptance_length
        return Speculation(
            rounds=self.rounds,
            drafted=self.drafted,
            accepted=self.accepted,
            acceptance_rate=None if rate is None else round(rate, 4),
            mean_acceptance_length=None if length is None else round(length, 3),
            accepted_per_position=self.accepted_per_position,
            looked_up=self.looked_up,
            looked_up_accepted=self.looked_up_accepted,
            by_head=self.by_head,
            by_head_accepted=self.by_head_accepted,
            prediction_accepted=self.prediction_accepted if self.predicted else None,
            prediction_rejected=self.prediction_rejected if self.predicted else None,
            from_grammar=self.from_grammar,
            drafting_ms=milliseconds(self.drafting),
            draft_context=None if self.context is None else DraftContext(**self.context._asdict()),
            draft_failure=self.failure,
        )


@dataclass(eq=False, slots=True)
class FusedText:
    """One text. Used by its thread, which waits while the round thread writes it; `cancel` by the event loop."""

    engine: TokenEngine
    draft: SharedDraftModel
    session: Session
    length: int | None  # draft length; None: the controller chooses it
    prediction: Sequence[int] | None  # token ids that the text may have; None: there is no prediction
    clock: Callable[[], float]
    counts: DraftCounts
    began: float  # when the text was requested, by `clock`
    position: int  # where the tokens not reported yet begin
    corpus: DraftCorpus | None
    earlier: EarlierTexts | None  # to which this one is added
    on_answer: OnAnswer
    deliver: Callable[[], None]
    rounds: RoundThread | None  # which writes it; None: it is written by itself, one draft after the other
    cancelled: bool = False
    _connection: EngineConnection = field(init=False)
    _drafter: Drafter | None = None
    _member: RoundMember | None = None  # once the rounds write it
    _judged: JudgedRounds = field(default_factory=JudgedRounds)
    _prefill: Callable[[], Answer] | None = None  # waits for the answer to the prefill; None: it has come
    _queue: float = 0.0  # seconds of the text so far
    _forward: float = 0.0

    def __post_init__(self) -> None:
        self._connection = EngineConnection(self.engine, self.session)

    def run(self, estimates: Estimates) -> None:
        """Write the text and report its answers, with the times summed up over the text so far; after a failure, the
        error comes last.

        The wait for a slot of the draft model counts as queueing, like the wait for the engine.
        """
        self._queue = self.clock() - self.began
        try:
            self._generate(estimates)
        except SpecPairError as error:
            if not self.cancelled:
                self._tell(error)
        except Exception as error:
            _log.exception("the thread of a text died", extra={"session_id": self.session.id})
            self._tell(InternalError(f"a fault of the verifier ({type(error).__name__}): see its log"))
        if self.earlier is not None:
            self.earlier.add(self._scope, self.session.tokens[:])

    @property
    def _scope(self) -> tuple[str, str]:
        """The scope within which earlier texts are looked up."""
        return self.session.lease.owner, self.session.spec.cache_salt

    def _tell(self, result: Answer | SpecPairError) -> None:
        self.on_answer(result)
        self.deliver()

    def cancel(self) -> None:
        """End the text's thread, and drop its requests in the engine. Called in the event loop, also after the end."""
        self.cancelled = True
        self._connection.abort()
        if self.rounds is not None and self._member is not None:
            self.rounds.cancel(self._member)

    def _generate(self, estimates: Estimates) -> None:
        """Prefill the prompt, then draft and verify to the end of the text; without drafts once drafting has failed."""
        if self.cancelled:  # while the text waited for its turn
            return
        submit = None if self.rounds is None else partial(self.rounds.open, self.engine)
        self._prefill = self._connection.begin(Draft(self.position), submit=submit)
        try:
            self._draft(estimates)
        except SpecPairError:  # the target's engine, or the session is gone
            raise
        except Exception as error:  # of any type: an engine's own, out of memory, a bug of ours
            reason = self.counts.failure = self.draft.failed(error)
            _log.error(
                "drafting failed, the text continues without drafts: %s",
                reason,
                exc_info=not isinstance(error, BackendError),
                extra={"session_id": self.session.id},
            )
            self._decode()

    def _draft(self, estimates: Estimates) -> None:
        """Prefill, draft and verify, to the end of the text."""
        session, known, earlier = self.session, self.session.tokens[: self.position], self.earlier
        if session.strategy not in DRAFTER_INVARIANT:
            earlier = None  # the text would depend on earlier ones
        with self.draft.drafter(session.spec, known[: session.prompt_len], session.scope) as drafter:
            sampling, vocabulary = session.spec.drawn, self.engine.info.vocabulary
            limits = processors_of(sampling, vocabulary, session.prompt_len, limits=True)
            lookups = Lookups(
                session.prompt_len,
                in_text=not self.draft.looks_up,
                prediction=self.prediction,
                corpus=None if self.corpus is None else self.corpus.lookup(),
                earlier=None if earlier is None else earlier.lookup(self._scope, vocabulary.size),
                limits=limits,
            )
            lookups.follow(known)
            if self.draft.head_depth and not self.draft.has_model:
                drafter = HeadDrafter(self.engine, session)
            self._drafter, held = drafter, drafter.begun if isinstance(drafter, ModelDrafter) else 0
            # It reads while the target does. Without rounds, what is left then is read in the first draft step.
            connection, alone = self._connection, self.rounds is None
            read_prompt(
                drafter,
                known,
                held,
                stopped=lambda: self.cancelled or (alone and connection.has_answer),
                answered=lambda: connection.has_answer,
            )
            self._note_context()
            answer = self._opened()
            self._tell(answer)
            text = PlainTranscript([*known, *answer.tokens], answer.finish_reason)
            if text.finish_reason is not None:
                return
            if self.rounds is not None and isinstance(drafter, ModelDrafter | HeadDrafter):
                self._write_in_rounds(self.rounds, drafter, text.known, lookups, estimates)
            else:
                self._write_alone(drafter, text, lookups, estimates, answer)

    def _write_in_rounds(
        self, rounds: RoundThread, drafter: Drafter, known: list[int], lookups: Lookups, estimates: Estimates
    ) -> None:
        session, info = self.session, self.engine.info
        committed = CommittedText(known, info.vocabulary.ends, lookups, estimates.acceptance)
        model = drafter if isinstance(drafter, ModelDrafter) else None
        depths = {DraftSource.HEAD: self.draft.head_depth, DraftSource.MODEL: MAX_AUTO if model is not None else 0}
        text = RoundText(committed, estimates.acceptance, session.limit, info.max_drafts, depths)
        self._member = RoundMember(text, self.engine, session, model, self._drafted, self._answered)
        if not self.cancelled:
            rounds.write(self._member)

    def _drafted(self, seconds: float) -> None:
        self.draft.worked()
        self.counts.drafting += seconds
        self._note_context()

    def _note_context(self) -> None:
        if isinstance(self._drafter, ModelDrafter):
            self.counts.context = self._drafter.context_read

    def _answered(self, answer: Answer, draft: Draft) -> None:
        """Report an answer of the rounds, and count its round. `draft`: what the target judged."""
        tokens = self.session.tokens[: answer.total_tokens]
        for each in self._judged.of(answer.details.sources, answer.position, tokens, [InFlightDraft(draft, 0.0)]):
            self.counts.count(each)
        self.on_answer(self._taken(answer))

    def _write_alone(
        self, drafter: Drafter, text: PlainTranscript, lookups: Lookups, estimates: Estimates, opened: Answer
    ) -> None:
        """Draft, send and wait, in turn."""
        session, latencies, info = self.session, estimates.latencies, self.engine.info
        latencies.drafted(1, self.draft.step_time)
        executor = SerialExecutor(self._connection, drafter)
        controller = SpeculationController(
            text.known,
            session.limit,
            info.vocabulary.ends,
            estimates,
            DraftLength(self.length, info.max_drafts),
            mechanisms=LOCKSTEP,
            lookups=lookups,
            always_send=session.strategy.draws,
        )
        forced = forced_before(opened.details.sources, len(opened.tokens))
        controller.opened(self.clock(), latencies.link, forced)
        reactor = Reactor(text, controller, self._take, self.clock)
        executor.open(len(text.known), reactor.react)
        try:
            while text.finish_reason is None:
                try:
                    reactor.turn(executor)
                finally:
                    self._report(text)
            reactor.end()
        finally:
            executor.close()

    def _opened(self) -> Answer:
        """The answer to the prefill."""
        prefill, self._prefill = self._prefill, None
        assert prefill is not None
        return self._taken(prefill())

    def _decode(self) -> None:
        """Decode without drafts, to the end of the text."""
        if self._prefill is not None:
            self._tell(self._opened())
        session = self.session
        while not (self.cancelled or (session.finish_reason is not None and self.position >= len(session.tokens))):
            answer = self._connection.verify(Draft(self.position))
            if self.position > session.prompt_len:
                for _ in rounds(answer.details.sources):
                    self.counts.count(JudgedRound(0, 0))
            self._tell(self._taken(answer))

    def _taken(self, answer: Answer) -> Answer:
        """An answer to report next, with the text's times so far."""
        self.position = answer.position + len(answer.tokens)
        self._queue += answer.queue
        self._forward += answer.forward
        return replace(answer, queue=self._queue, forward=self._forward)

    def _take(self, event: events.RunEvent, _now: float) -> None:
        """Count an event of the run, a `Listener`."""
        match event:
            case events.Drafted():
                self._drafted(event.took)
            case events.Answered(_, answer):
                self._queue += answer.queue
                self._forward += answer.forward
            case events.Committed():
                by_head = isinstance(self._drafter, HeadDrafter)
                for each in event.rounds:
                    self.counts.count(each.drafted_by(DraftSource.HEAD) if by_head else each)

    def _report(self, text: PlainTranscript) -> None:
        """Report what was committed since the last call: an answer for each pass that committed tokens."""
        while text.unread:
            committed = text.unread.popleft()
            session, position = self.session, committed.position
            for marks in passes(session.details_of(position, position + len(committed.tokens)).sources):
                self.position = end = position + len(marks)
                ran = last_round(marks)
                self._tell(
                    Answer(
                        position=position,
                        tokens=session.tokens[position:end],
                        details=session.details_of(position, end),
                        accepted=0 if ran is None else ran.accepted,
                        judged=0 if ran is None else ran.judged,
                        total_tokens=end,
                        finish_reason=session.ended_at(end),
                        queue=self._queue,
                        forward=self._forward,
                    )
                )
                position = end
