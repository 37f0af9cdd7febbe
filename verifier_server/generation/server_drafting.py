"""Server-side drafting (mode fused): texts that the server both drafts and verifies, in lockstep.

The engine judges these drafts in the same passes as those of clients. Each text has a thread while it is generated. As
many texts run at once as the draft model has slots; the others wait. Clients take turns; the texts of one client run
in order of arrival.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

from backends.base import BackendError
from drafters.base import Drafter
from speculation.acceptance.draft import NO_DRAFT, Draft
from speculation.acceptance.round_counts import JudgedRound, RoundCounts
from speculation.drafts.ngram import NgramIndex
from speculation.drafts.predicted_output import PredictedOutput
from speculation.errors import InternalError, SpecPairError
from speculation.policy.controller import SpeculationController
from speculation.policy.experience import Estimates, Experience
from speculation.policy.schedule import LOCKSTEP
from speculation.protocol.responses import Speculation
from verifier_server.engine.engine import Engine
from verifier_server.engine.requests import Answer, OnAnswer, Request
from verifier_server.generation.draft_model import DraftModel
from verifier_server.generation.engine_client import disconnected
from verifier_server.generation.fair_pool import FairPool
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.verifier")


@dataclass(slots=True)
class DraftCounts(RoundCounts):
    """Draft statistics of one text. Counted by its thread, read after its last answer."""

    draft_model: str = ""
    predicted: bool = False  # whether the request has a prediction of the text
    drafting_ms: float = 0.0  # milliseconds spent on draft steps
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
            prediction_accepted=self.prediction_accepted if self.predicted else None,
            prediction_rejected=self.prediction_rejected if self.predicted else None,
            drafting_ms=round(self.drafting_ms, 3),
            draft_failure=self.failure,
        )


class ServerDrafting:
    """Generates texts with server-side drafting, each in a thread."""

    def __init__(
        self, draft: DraftModel, pass_ms: Sequence[float], clock: Callable[[], float], deliver: Callable[[], None]
    ) -> None:
        """`pass_ms`: milliseconds of the target's passes over 1, 2, … tokens. `clock`: in seconds.

        `deliver` is called after each answer of a text.
        """
        self.draft = draft
        self._pass_ms, self._clock, self._deliver = pass_ms, clock, deliver
        self._experience = Experience()
        self._threads = FairPool(draft.slots)

    def start(
        self,
        engine: Engine,
        session: Session,
        length: int | None,
        counts: DraftCounts,
        position: int,
        on_answer: OnAnswer,
        prediction: Sequence[int] | None = None,
    ) -> Callable[[], None]:
        """Generate a text when its turn comes; `on_answer` gets each answer. Returns a function that cancels
        the text for good: then another request can generate in the session.

        `length`: the draft length; None: the controller chooses it. `position`: where the first answer begins.
        `prediction`: token ids that the text may have; None: there is none.
        """
        text = _FusedText(engine, self.draft, session, length, prediction, self._clock, counts, self._clock(), position)

        def generate() -> None:
            with self._experience.text(session.spec, self._pass_ms) as estimates:
                for result in text.results(estimates):
                    on_answer(result)
                    self._deliver()

        self._threads.submit(session.place.client, generate)
        return text.cancel

    def stop(self) -> None:
        """Wait for the threads, and free the draft model. Stop the engine before, so that their requests fail."""
        self._threads.shutdown()
        self.draft.close()


@dataclass(eq=False, slots=True)
class _FusedText:
    """The draft loop of one text. Used by one thread, except `cancel`."""

    engine: Engine
    draft: DraftModel
    session: Session
    length: int | None  # draft length; None: the controller chooses it
    prediction: Sequence[int] | None  # token ids that the text may have; None: there is no prediction
    clock: Callable[[], float]
    counts: DraftCounts
    began: float  # when the text was requested, by `clock`
    position: int  # where the tokens not reported yet begin
    cancelled: bool = False
    _request: Request | None = None  # the latest request
    _answers: SimpleQueue[Answer | SpecPairError] = field(default_factory=SimpleQueue)

    def results(self, estimates: Estimates) -> Iterator[Answer | SpecPairError]:
        """The answers, with the times summed up over the text so far; after a failure, the error comes last.

        The wait for a slot of the draft model counts as queueing, like the wait for the engine.
        """
        queue_ms, forward_ms = 1e3 * (self.clock() - self.began), 0.0
        try:
            with closing(self._generated(estimates)) as answers:
                for answer in answers:
                    queue_ms += answer.queue_ms
                    forward_ms += answer.forward_ms
                    yield replace(answer, queue_ms=queue_ms, forward_ms=forward_ms)
        except SpecPairError as error:
            if not self.cancelled:
                yield error
        except Exception as error:
            _log.exception("the thread of a text died", extra={"session_id": self.session.id})
            yield InternalError(f"a fault of the verifier ({type(error).__name__}): see its log")

    def cancel(self) -> None:
        """End the text's thread, and drop its request in the engine. Thread-safe."""
        self.cancelled = True
        if self._request is not None:
            self._request.cancelled = True
        self._answers.put(disconnected())  # the engine drops the request without an answer

    def _generated(self, estimates: Estimates) -> Generator[Answer]:
        """Prefill the prompt, then draft and verify to the end of the text; without drafts once drafting has failed."""
        if self.cancelled:  # while the text waited for its turn
            return
        self._ask(admitted=False)
        index = None if self.draft.looks_up else NgramIndex()
        if index is not None:
            index.extend(self.session.tokens[: self.position])  # while the engine prefills it
        predicted = None
        if self.prediction is not None:
            predicted = PredictedOutput(self.prediction, self.session.prompt_len)
        yield self._answer()
        try:
            yield from self._drafted(index, predicted, estimates)
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

    def _drafted(
        self, lookup: NgramIndex | None, predicted: PredictedOutput | None, estimates: Estimates
    ) -> Iterator[Answer]:
        """Draft and verify, to the end of the text.

        `lookup` finds draft tokens in the text; None: the drafter does. `predicted`: finds them in the prediction.
        """
        session, latencies = self.session, estimates.latencies
        ends, most = self.engine.backend.vocabulary.ends, self.engine.max_drafts
        latencies.drafted(1, self.draft.step_ms)
        controller = SpeculationController(
            session.tokens[: self.position],
            session.limit,
            ends,
            latencies,
            max_drafts=most,
            length=self.length,
            mechanisms=LOCKSTEP,
            lookup=lookup,
            acceptance=estimates.acceptance,
            predicted=predicted,
            always_send=session.strategy.draws,
            now=self._now(),
        )
        prompt = session.tokens[: session.prompt_len]
        with self.draft.drafter(session.spec, prompt, session.scope) as drafter:
            while not (self._ended or self.cancelled):
                now = self._now()
                in_flight_draft = controller.next_draft(now)
                if in_flight_draft is None:
                    self._draft(controller, drafter, now)
                    continue
                self._ask(in_flight_draft.draft)
                answer = self._answer()
                ended = answer.finish_reason is not None
                self._count(answer, in_flight_draft.draft)
                now = self._now()
                controller.answered(
                    in_flight_draft, answer.judged, answer.queue_ms, answer.forward_ms, now, answer.sessions
                )
                controller.committed(answer.position, answer.tokens, ended, now)
                yield answer
                controller.reflect()

    def _draft(self, controller: SpeculationController, drafter: Drafter, now: float) -> None:
        """Run the draft step that the controller asks for. `now`: in milliseconds."""
        step = controller.next_step(now)
        assert step is not None, "in lockstep there is always a draft step to run if there is no draft to send"
        expansion = drafter.expand(controller.known[: step.length], step.tails, step.runners_up)
        self.draft.worked()
        self.counts.drafting_ms += controller.drafted(expansion.predictions, expansion.read, self._now())

    def _plain(self) -> Iterator[Answer]:
        """Decode without drafts, to the end of the text."""
        while not (self._ended or self.cancelled):
            self._ask()
            answer = self._answer()
            self._count(answer)
            yield answer

    def _count(self, answer: Answer, draft: Draft = NO_DRAFT) -> None:
        """Count a round over this draft."""
        ran = answer.round
        if ran is not None:
            self.counts.count(JudgedRound(ran.judged, ran.accepted, draft.tokens[: ran.judged]))

    def _ask(self, draft: Draft | None = None, admitted: bool = True) -> None:
        """Send a draft to the engine; None: an empty one. Raises InvalidRequest if the text was cancelled.

        `admitted`: whether the engine has answered a request of this text.
        """
        asked = draft or Draft(self.position)
        self._request = request = Request(self.session, asked, self._answers.put, admitted=admitted)
        if self.cancelled:  # looked at after `_request` is set, so that `cancel` drops every later request
            raise disconnected()
        self.engine.submit(request)

    def _answer(self) -> Answer:
        """Wait for the answer to the latest request. Raises the error that the engine answers with."""
        result = self._answers.get()
        if isinstance(result, SpecPairError):
            raise result
        self.position = result.position + len(result.tokens)
        return result

    @property
    def _ended(self) -> bool:
        """Whether the last answer reported the end of the text."""
        return self.session.finish_reason is not None and self.position >= len(self.session.tokens)

    def _now(self) -> float:
        """The time in milliseconds, as the controller wants it."""
        return 1e3 * self.clock()
