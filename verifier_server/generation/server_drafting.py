"""Fused: texts that are drafted and verified here, by the draft loop of the pair in lockstep, with no network between.

The engine judges guesses as it judges those of clients, in the passes of all. Each text has a thread while it is
written; as many are under way as the draft model has rows, the others wait: clients take turns, the texts of each in
the order in which they came.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Lock
from typing import Any

from backends.base import BackendError
from drafters.base import Drafter
from speculation.drafts.ngram import NgramIndex
from speculation.errors import InternalError, SpecPairError
from speculation.policy.controller import SpeculationController
from speculation.policy.schedule import LOCKSTEP
from speculation.policy.timing import LatencyModel
from speculation.policy.verifier_timeline import InFlightDraft
from verifier_server.engine.engine import Engine
from verifier_server.engine.requests import Answer, Request, Told
from verifier_server.generation.disconnects import hung_up
from verifier_server.generation.draft_model import DraftModel
from verifier_server.generation.fair_pool import FairPool
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.verifier")


@dataclass(slots=True)
class DraftCounts:
    """What drafting came to in one text. Counted by its thread, read when its last answer is there."""

    draft_model: str
    rounds: int = 0  # passes behind the one that read the prompt
    drafted: int = 0
    accepted: int = 0
    looked_up: int = 0  # of those drafted, looked up in the text in place of asking the model
    looked_up_accepted: int = 0
    drafting_ms: float = 0.0
    per_position: list[int] = field(default_factory=list)  # accepted drafts, by their place in a guess
    failure: str | None = None  # why drafting ended before the text did

    def round(self, answer: Answer, found: Sequence[bool]) -> None:
        """Count a guess. `found`: of each of its drafts, whether it was looked up."""
        self.rounds += 1
        self.drafted += answer.judged
        accepted = min(answer.accepted, answer.judged)  # a bonus token may equal a draft that was not judged
        self.accepted += accepted
        self.looked_up += sum(found[: answer.judged])
        self.looked_up_accepted += sum(found[:accepted])
        self.per_position += [0] * (accepted - len(self.per_position))
        for place in range(accepted):
            self.per_position[place] += 1

    def body(self) -> dict[str, Any]:
        """As the reply carries it."""
        body = {
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "acceptance_rate": round(self.accepted / self.drafted, 4) if self.drafted else None,
            "mean_acceptance_length": round(1 + self.accepted / self.rounds, 3) if self.rounds else None,
            "accepted_per_position": self.per_position,
            "looked_up": self.looked_up,
            "looked_up_accepted": self.looked_up_accepted,
            "drafting_ms": round(self.drafting_ms, 3),
        }
        return body if self.failure is None else body | {"draft_failure": self.failure}


class ServerDrafting:
    """Writes texts with a draft model."""

    def __init__(
        self, draft: DraftModel, pass_ms: Sequence[float], clock: Callable[[], float], deliver: Callable[[], None]
    ) -> None:
        """`pass_ms`: of the target's passes, as for `LatencyModel`. `clock` in seconds. `deliver` is called after each
        answer of a text."""
        self.draft = draft
        self._pass_ms, self._clock, self._deliver = pass_ms, clock, deliver
        self._threads = FairPool(draft.rows, "fused")

    def start(
        self,
        engine: Engine,
        session: Session,
        length: int | None,
        counts: DraftCounts,
        told: Told,
        position: int | None = None,
    ) -> Callable[[], None]:
        """Write a text when its turn comes, and have `told` each answer. Returns what calls it off, for good: the
        session can be written by somebody else from then on.

        `length`: drafts a guess, None for as many as pay. `position`: where the first answer begins; None: the prompt's
        end.
        """
        began, times = self._clock(), LatencyModel(self._pass_ms)
        position = session.prompt_len if position is None else position
        text = _FusedText(engine, self.draft, session, length, times, self._clock, counts, began, position)

        def write() -> None:
            for result in text.results():
                told(result)
                self._deliver()

        self._threads.submit(session.client, write)
        return text.call_off

    def stop(self) -> None:
        """Wait for the threads, and free the draft model. The engine has stopped, so that all they ask for fails."""
        self._threads.shutdown()
        self.draft.close()


@dataclass(eq=False, slots=True)
class _FusedText:
    """The draft loop of one text. Used by one thread, but for `call_off`."""

    engine: Engine
    draft: DraftModel
    session: Session
    length: int | None
    times: LatencyModel
    clock: Callable[[], float]
    counts: DraftCounts
    began: float  # when it was asked for, on that clock
    position: int  # up to where all tokens were told
    cancelled: bool = False
    _let_in: bool = False  # it has had an answer
    _asked: Request | None = None  # the latest
    _asking: Lock = field(default_factory=Lock)
    _answers: SimpleQueue[Answer | SpecPairError] = field(default_factory=SimpleQueue)
    _queue_ms: float = 0.0  # of the wait for a row of the draft model, and of all guesses so far
    _forward_ms: float = 0.0

    def results(self) -> Iterator[Answer | SpecPairError]:
        """The answers, with times that add up over the text; at last, where something went wrong, the error.

        The wait for its turn counts as queueing: for the engine or for the draft model, a client waits alike.
        """
        try:
            with closing(self._written()) as written:
                for answer in written:
                    self._queue_ms += answer.queue_ms
                    self._forward_ms += answer.forward_ms
                    yield replace(answer, queue_ms=self._queue_ms, forward_ms=self._forward_ms)
        except SpecPairError as error:
            if not self.cancelled:
                yield error
        except Exception as error:
            _log.exception("the thread of a text died")
            yield InternalError(f"a fault of the verifier ({type(error).__name__}): see its log")

    def call_off(self) -> None:
        """Have the thread end, and the engine judge no further guess of it. From any thread."""
        with self._asking:
            self.cancelled = True
            if self._asked is not None:
                self._asked.cancelled = True
        self._answers.put(hung_up())  # the engine drops the guess without an answer

    def _written(self) -> Generator[Answer]:
        if self.cancelled:  # while it waited for its turn
            return
        self._queue_ms = 1e3 * (self.clock() - self.began)
        self._ask()
        index = None if self.draft.looks_up else NgramIndex()
        if index is not None:
            index.extend(self.session.tokens[: self.position])  # while the engine reads it
        yield self._answer()
        try:
            yield from self._drafted(index)
        except SpecPairError:  # the target's engine, or the session is gone
            raise
        except Exception as error:  # of whatever type: an engine's own, out of memory, a fault of ours
            reason = self.counts.failure = self.draft.failed(error)
            _log.error(
                "drafting failed, a text goes on without: %s", reason, exc_info=not isinstance(error, BackendError)
            )
            yield from self._plain()

    def _drafted(self, lookup: NgramIndex | None) -> Iterator[Answer]:
        """Draft, ask, wait, to the end of the text."""
        session, times = self.session, self.times
        ends, most = self.engine.backend.vocabulary.ends, self.engine.max_drafts
        times.drafted(1, self.draft.step_ms)
        controller = SpeculationController(
            session.tokens[: self.position],
            session.limit,
            ends,
            times,
            max_drafts=most,
            length=self.length,
            mechanisms=LOCKSTEP,
            lookup=lookup,
            always_send=session.strategy.draws,
            now=self._now(),
        )
        with self.draft.drafter(session.sampling, session.strategy) as drafter:
            while not (self._ended or self.cancelled):
                now = self._now()
                in_flight_draft = controller.next_guess(now)
                if in_flight_draft is None:
                    self._draft(controller, drafter, now)
                    continue
                self._ask(in_flight_draft)
                answer = self._answer()
                ended = answer.finish_reason is not None
                self.counts.round(answer, in_flight_draft.found)
                now = self._now()
                controller.answered(
                    in_flight_draft, answer.judged, answer.queue_ms, answer.forward_ms, now, answer.sessions
                )
                controller.committed(answer.position, answer.tokens, ended, now)
                yield answer
                controller.reflect()

    def _draft(self, controller: SpeculationController, drafter: Drafter, now: float) -> None:
        step = controller.next_step(now)
        assert step is not None, "in lockstep there is a draft to make where there is no guess to send"
        expansion = drafter.expand(controller.known[: step.length], step.tails, step.runners_up)
        self.draft.worked()
        self.counts.drafting_ms += controller.drafted(expansion.predictions, expansion.read, self._now())

    def _plain(self) -> Iterator[Answer]:
        """Step by step, to the end of the text."""
        while not (self._ended or self.cancelled):
            self._ask()
            answer = self._answer()
            self.counts.round(answer, [])
            yield answer

    def _ask(self, in_flight_draft: InFlightDraft | None = None) -> None:
        """Hand a guess to the engine; without one, ask for one token. Raises SpecPairError when it was called off."""
        drafts, proposals = (
            ([], []) if in_flight_draft is None else (in_flight_draft.drafts, in_flight_draft.probs or [])
        )
        request = Request(
            self.session, self.position, drafts, self._answers.put, resumes=self._let_in, proposals=proposals
        )
        with self._asking:
            if self.cancelled:
                raise hung_up()
            self._asked = request
        self.engine.submit(request)

    def _answer(self) -> Answer:
        """Wait for it. Raises what the engine answers, which is an error when the session was forgotten meanwhile."""
        result = self._answers.get()
        if isinstance(result, SpecPairError):
            raise result
        self._let_in, self.position = True, result.position + len(result.tokens)
        return result

    @property
    def _ended(self) -> bool:
        """Whether the last answer told the end."""
        return self.session.finish_reason is not None and self.position >= len(self.session.tokens)

    def _now(self) -> float:
        return 1e3 * self.clock()
