"""Server-side drafting (mode fused): texts that the server both drafts and verifies, by the run that a drafter has.

The engine judges these drafts in the same passes as those of clients. Each text has a thread while it is generated. As
many texts run at once as the draft model has slots; the others wait. Clients take turns; the texts of one client run
in order of arrival.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from specpair.corpus.draft_corpus import DraftCorpus
from specpair.drafters.run import events
from specpair.drafters.run.executors import executor_of
from specpair.drafters.run.reactor import PlainTranscript, Reactor
from specpair.engines.errors import BackendError
from specpair.grammar.of_text import processors_of
from specpair.protocol.errors import InternalError, SpecPairError
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.acceptance.token_source import forced_before, last_round, passes, rounds
from specpair.speculation.draft import Draft
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.experience import Estimates, Experience
from specpair.speculation.policy.rejection_policy import RejectionPolicy
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, mechanisms_of
from verifier_server.engine.port import TokenEngine
from verifier_server.engine.requests import Answer, OnAnswer
from verifier_server.generation.draft_model import DraftModel
from verifier_server.generation.drafting import DraftCounts
from verifier_server.generation.engine_lane import EngineLane
from verifier_server.generation.fair_pool import FairPool
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.verifier")


class ServerDrafting:
    """Generates texts with a draft model, or by lookup, each in a thread. It is a `Drafting`."""

    def __init__(
        self,
        draft: DraftModel,
        pass_times: Sequence[float],
        clock: Callable[[], float],
        deliver: Callable[[], None],
        corpus: DraftCorpus | None = None,
    ) -> None:
        """`pass_times`: seconds of the target's passes over 1, 2, … tokens.
        `clock`: in seconds.
        `corpus`: files from which draft tokens are looked up, which `stop` closes.

        `deliver` is called after each answer of a text.
        """
        self.draft, self.corpus = draft, corpus
        self._pass_times, self._clock, self._deliver = pass_times, clock, deliver
        self._experience = Experience()
        self._threads = FairPool(draft.slots)

    def start(
        self,
        engine: TokenEngine,
        session: Session,
        length: int | None,
        counts: DraftCounts,
        position: int,
        on_answer: OnAnswer,
        prediction: Sequence[int] | None = None,
    ) -> Callable[[], None]:
        """See `Drafting`. Without a `length` the controller chooses it."""
        text = _FusedRun(
            engine, self.draft, session, length, prediction, self._clock, counts, self._clock(), position, self.corpus
        )

        def generate() -> None:
            with self._experience.text(session.spec, self._pass_times) as estimates:
                for result in text.results(estimates):
                    on_answer(result)
                    self._deliver()

        self._threads.submit(session.client, generate)
        return text.cancel

    def stop(self) -> None:
        """Wait for the threads, and free the draft model. Stop the engine before, so that their requests fail."""
        self._threads.shutdown()
        self.draft.close()
        if self.corpus is not None:
            self.corpus.close()


@dataclass(eq=False, slots=True)
class _FusedRun:
    """One text. Used by one thread, except `cancel`."""

    engine: TokenEngine
    draft: DraftModel
    session: Session
    length: int | None  # draft length; None: the controller chooses it
    prediction: Sequence[int] | None  # token ids that the text may have; None: there is no prediction
    clock: Callable[[], float]
    counts: DraftCounts
    began: float  # when the text was requested, by `clock`
    position: int  # where the tokens not reported yet begin
    corpus: DraftCorpus | None
    cancelled: bool = False
    _lane: EngineLane = field(init=False)
    _prefill: Callable[[], Answer] | None = None  # waits for the answer to the prefill; None: it has come
    _queue: float = 0.0  # seconds of the text so far
    _forward: float = 0.0

    def __post_init__(self) -> None:
        self._lane = EngineLane(self.engine, self.session)
        self.session.self_continue = self.mechanisms.self_continue

    @property
    def mechanisms(self) -> Mechanisms:
        """How drafting and verifying share the time: side by side, where the draft model has cores of its own."""
        if self.length is not None or self.draft.looks_up or self.session.strategy not in DRAFTER_INVARIANT:
            return LOCKSTEP
        shares = self.draft.shares_cores_with(self.engine.info)
        # No message takes time here: what is judged, and what waits for it.
        return replace(mechanisms_of(shares_cores=shares, self_continue=True, may_change_mode=True), in_flight=2)

    def results(self, estimates: Estimates) -> Iterator[Answer | SpecPairError]:
        """The answers, with the times summed up over the text so far; after a failure, the error comes last.

        The wait for a slot of the draft model counts as queueing, like the wait for the engine.
        """
        self._queue = self.clock() - self.began
        try:
            with closing(self._generated(estimates)) as answers:
                yield from answers
        except SpecPairError as error:
            if not self.cancelled:
                yield error
        except Exception as error:
            _log.exception("the thread of a text died", extra={"session_id": self.session.id})
            yield InternalError(f"a fault of the verifier ({type(error).__name__}): see its log")

    def cancel(self) -> None:
        """End the text's thread, and drop its requests in the engine. Called in the event loop, also after the end."""
        if not self.cancelled:  # else a later text may have the session
            self.session.self_continue = False
        self.cancelled = True
        self._lane.abort()

    def _generated(self, estimates: Estimates) -> Generator[Answer]:
        """Prefill the prompt, then draft and verify to the end of the text; without drafts once drafting has failed."""
        if self.cancelled:  # while the text waited for its turn
            return
        self._prefill = self._lane.begin(Draft(self.position), RejectionPolicy(next_in=estimates.latencies.link))
        try:
            yield from self._drafted(estimates)
        except SpecPairError:  # the target's engine, or the session is gone
            raise
        except Exception as error:  # of any type: an engine's own, out of memory, a bug of ours
            reason = self.counts.failure = self.draft.failed(error)
            _log.error(
                "drafting failed, the text is continued without: %s",
                reason,
                exc_info=not isinstance(error, BackendError),
                extra={"session_id": self.session.id},
            )
            yield from self._plain()

    def _drafted(self, estimates: Estimates) -> Iterator[Answer]:
        """Prefill, draft and verify, to the end of the text."""
        session, latencies, mechanisms = self.session, estimates.latencies, self.mechanisms
        known = session.tokens[: self.position]
        prompt = known[: session.prompt_len]
        latencies.drafted(1, self.draft.step_time)
        latencies.trimmed = True
        with self.draft.drafter(session.spec, prompt, session.scope) as drafter, ExitStack() as stack:
            executor = executor_of(self._lane, drafter, mechanisms)
            stack.callback(executor.close)
            executor.read(known, 0)
            sampling, vocabulary = session.spec.drawn, self.engine.info.vocabulary
            limits = processors_of(sampling, vocabulary, session.prompt_len, limits=True)
            looks_up = not self.draft.looks_up
            corpus = None if self.corpus is None else self.corpus.lookup()
            lookups = Lookups(
                session.prompt_len, in_text=looks_up, prediction=self.prediction, corpus=corpus, limits=limits
            )
            lookups.follow(known)
            answer = self._opened()
            yield answer
            text = PlainTranscript([*known, *answer.tokens], answer.finish_reason)
            controller = SpeculationController(
                text.known,
                session.limit,
                self.engine.info.vocabulary.ends,
                latencies,
                max_drafts=self.engine.info.max_drafts,
                length=self.length,
                mechanisms=mechanisms,
                next_in=latencies.link,
                forced=forced_before(answer.details.sources, len(answer.tokens)),
                lookups=lookups,
                acceptance=estimates.acceptance,
                always_send=session.strategy.draws,
                tell_chances=True,
                now=self.clock(),
            )
            reactor = Reactor(text, controller, executor, self._take, self.clock)
            executor.open(len(text.known), reactor.react)
            while text.finish_reason is None:
                try:
                    reactor.turn()
                finally:
                    yield from self._unread(text)
            yield from self._unread(text)  # the event stream may have brought all of it before the first turn
            reactor.end()

    def _opened(self) -> Answer:
        """The answer to the prefill."""
        prefill, self._prefill = self._prefill, None
        assert prefill is not None
        return self._taken(prefill())

    def _plain(self) -> Iterator[Answer]:
        """Decode without drafts, to the end of the text."""
        if not self.cancelled:  # see `cancel`
            self.session.self_continue = False
        if self._prefill is not None:
            yield self._opened()
        while not (self._ended or self.cancelled):
            answer = self._lane.verify(Draft(self.position))
            if self.position > self.session.prompt_len:
                for _ in rounds(answer.details.sources):
                    self.counts.count(JudgedRound(0, 0))
            yield self._taken(answer)

    def _taken(self, answer: Answer) -> Answer:
        """An answer that is reported next, with the times of the text so far."""
        self.position = answer.position + len(answer.tokens)
        self._queue += answer.queue
        self._forward += answer.forward
        return replace(answer, queue=self._queue, forward=self._forward)

    def _take(self, event: events.RunEvent, _now: float) -> None:
        """Count an event of the run, a `Listener`."""
        match event:
            case events.Drafted():
                self.draft.worked()
                self.counts.drafting += event.took
            case events.Answered(_, answer):
                self._queue += answer.queue
                self._forward += answer.forward
            case events.Streamed():
                self._forward += event.forward or 0.0
            case events.Committed():
                for each in event.rounds:
                    self.counts.count(each)

    def _unread(self, text: PlainTranscript) -> Iterator[Answer]:
        """The answers for what was committed since the last call."""
        while text.unread:
            yield from self._reported(text.unread.popleft())

    def _reported(self, committed: events.Committed) -> Iterator[Answer]:
        """An answer for each pass that committed tokens."""
        session, position = self.session, committed.position
        for marks in passes(session.details_of(position, position + len(committed.tokens)).sources):
            end = position + len(marks)
            ran = last_round(marks)
            self.position = end
            yield Answer(
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
            position = end

    @property
    def _ended(self) -> bool:
        """Whether the last answer reported the end of the text."""
        return self.session.finish_reason is not None and self.position >= len(self.session.tokens)
