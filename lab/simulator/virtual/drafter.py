"""A drafter in virtual time: the real controller and a draft model; time, network and costs are modelled.

A draft step takes the time of a cost model. The time that the program itself takes is left out, except `overhead`.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from lab.simulator.virtual.network import SIZES, Network, TextWire, submit
from lab.simulator.virtual.world import ProcessQueue, ReachableVerifier, or_raise
from specpair.drafters.base import Drafter
from specpair.drafters.run.events import Answered, Committed, Completion, Drafted, RunEvent, Streamed
from specpair.drafters.run.executors import Executor
from specpair.drafters.run.reactor import PlainTranscript, Reactor
from specpair.speculation.draft import Draft
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.node_selection import DraftStep
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import UNSAID, Mechanisms, RejectionPolicy
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.sessions import Session


@dataclass(slots=True)
class Course:
    """The record of a written text. Times in seconds; the other numbers are counts."""

    opened: float = 0.0  # when its first token was known
    times: list[float] = field(default_factory=list)  # when each token behind the first was known
    drafts_sent: int = 0
    judged: int = 0  # draft tokens that the target judged
    accepted: int = 0  # of these
    steps: int = 0  # draft steps

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first per second since the first."""
        return len(self.times) / (self.times[-1] - self.opened)


class VirtualDrafter(Executor):
    """One drafter with its text, from the prompt to the end. It is the executor of its run (see `Executor`)."""

    at_once = True

    def __init__(
        self,
        world: ReachableVerifier,
        prompt: Sequence[int],
        sampling: Sampling,
        drafter: Drafter,
        draft_time: Callable[[int], float],
        *,
        max_tokens: int,
        network: Network = Network(),
        overhead: float = 0.0,
        processes: Sequence[ProcessQueue] = (),
        length: int | DraftLength | None = None,
        mechanisms: Mechanisms = Mechanisms(),
        pass_times: Sequence[float] = (),
        lookup: bool = False,
        estimates: Estimates | None = None,
        prediction: Sequence[int] | None = None,
        held_up: Callable[[], float] = lambda: 0.0,
        seed: int = 0,
        name: str = "session",
    ) -> None:
        """`draft_time`: seconds of a draft step by its number of branches.
        `pass_times`: as for `LatencyModel`.
        `overhead`, `processes`: as for `TextWire`.
        `length`: fixed draft length; None: automatic; or what decides it.
        `lookup`: whether draft tokens are looked up in the text.
        `estimates`: what earlier texts have taught; None: nothing.
        `prediction`: of the output, as token ids; None: there is none.
        `held_up`: seconds that pass before the drafter reads its clock, as where its thread waits for a core.
        `seed`: of the network's random numbers.
        """
        self.course = Course()
        self.controller: SpeculationController | None = None
        self._reactor: Reactor | None = None
        self._world, self._drafter, self._draft_time = world, drafter, draft_time
        self._wire = TextWire(world, network, random.Random(seed), overhead, processes)
        self._length, self._mechanisms = length, mechanisms
        limit = min(len(prompt) + max_tokens, world.backend.context_length)
        ends = world.backend.vocabulary.ends
        self.session = Session(name, list(prompt), len(prompt), TextSpec.of(sampling), limit, ends)
        self.session.self_continue = mechanisms.self_continue
        self._estimates = estimates or Estimates(LatencyModel(pass_times), AcceptanceModel())
        self._latencies = self._estimates.latencies
        self._lookups = Lookups(len(prompt), in_text=lookup, prediction=prediction)
        self._latencies.exchanged(network.rtt + overhead, 0.0, 0.0)
        self._held_up, self._read_at = held_up, 0.0  # and when the drafter read its clock, in seconds
        self._before = 0  # tokens that the draft model has read for the step under way, beside one of each branch
        self._heard = 0  # position up to which tokens were put on the stream
        self._preparing = False  # whether the verifier prepares an event of the stream
        self._wake: float | None = None

    def start(self) -> None:
        """Send the prefill request."""
        policy = RejectionPolicy(next_in=self._latencies.link) if self._mechanisms.self_continue else UNSAID
        known = len(self.session.tokens)
        listens = SIZES.listen if self._mechanisms.self_continue else 0.0
        self._request(Draft(known), policy, SIZES.prefill.of(known) + listens, self._reply)

    @property
    def finished(self) -> bool:
        return self.controller is not None and self.controller.finished

    # What the reactor has run.

    def draft(self, step: DraftStep, text: list[int]) -> None:
        self._draft(step, step.tails)

    def send(self, in_flight_draft: InFlightDraft) -> None:
        self.course.drafts_sent += 1
        # As the executors that ship: one that drafts, sends and waits says nothing of the time after a rejection.
        in_turn = not (self._mechanisms.overlap or self._mechanisms.self_continue)
        draft = in_flight_draft.draft
        there, back = SIZES.verify, SIZES.verify_reply
        if not draft.is_chain:
            there, back = SIZES.verify_tree, SIZES.verify_tree_reply
        self._request(
            draft,
            UNSAID if in_turn else in_flight_draft.policy,
            there.of(len(draft)),
            lambda answer: self._wire.down(
                back.of(len(answer.tokens)), lambda: self._react(Answered(in_flight_draft, answer))
            ),
        )

    def wait(self, timeout: float | None) -> bool:
        raise NotImplementedError("in virtual time, the world calls")

    def fail(self, error: Exception) -> None:
        raise NotImplementedError("in virtual time, nobody leaves")

    # The network, and the draft model.

    def _request(self, draft: Draft, policy: RejectionPolicy, size: float, answered: Callable[[Answer], None]) -> None:
        """Send a request of `size` bytes. `answered`: called at the verifier with the answer."""
        request = Request(self.session, draft, or_raise(answered), policy=policy)
        self._wire.up(size, lambda: submit(self._world, request, self._wire, size))

    def _reply(self, answer: Answer) -> None:
        """Send the reply to the prefill, and the session's stream behind it. Called at the verifier."""
        size = self.session.prompt_len + len(answer.tokens)
        if not self._mechanisms.self_continue:
            self._wire.down(SIZES.prefill_reply.of(size), lambda: self._opened(answer))
            return
        size_streamed = SIZES.prefill_streamed.of(size)
        self._wire.prepare(lambda: self._wire.stream(size_streamed, lambda: self._opened(answer)))
        self._heard = answer.position + len(answer.tokens)
        self.session.watchers = (self._news,)

    def _opened(self, answer: Answer) -> None:
        now = self._world.now
        self.course.opened = now
        text = PlainTranscript(self.session.tokens[: answer.position] + answer.tokens, answer.finish_reason)
        length = self._length
        self.controller = SpeculationController(
            text.known,
            self.session.limit,
            self._world.backend.vocabulary.ends,
            self._estimates,
            length if isinstance(length, DraftLength) else DraftLength(length, self._world.scheduler.max_drafts),
            width=self._drafter.width,
            mechanisms=self._mechanisms,
            lookups=self._lookups,
        )
        self.controller.opened(now, self._latencies.link)
        self.controller.finished = answer.finish_reason is not None
        self._reactor = Reactor(text, self.controller, self._count, self._now)
        self._decide(acted=False)

    def _now(self) -> float:
        """The drafter's clock, in seconds."""
        self._read_at = max(self._read_at, self._world.now) + self._held_up()
        return self._read_at

    def _count(self, event: RunEvent, _now: float) -> None:
        match event:
            case Committed():
                self.course.times += [self._world.now] * len(event.tokens)
                self.course.judged += sum(each.judged for each in event.rounds)
                self.course.accepted += sum(each.accepted for each in event.rounds)

    def _react(self, event: Completion) -> None:
        assert self._reactor is not None
        if self._reactor.react(event, self):
            self._decide(acted=True)

    def _decide(self, *, acted: bool) -> None:
        """Have the reactor decide, and reset the timer for its next decision."""
        assert self._reactor is not None
        wake = self._reactor.run_due(self, acted=acted)
        if wake is not None and wake != self._wake:
            self._world.at(wake, partial(self._awake, wake))
        self._wake = wake

    def _awake(self, timer: float) -> None:
        if timer == self._wake and not self.finished:  # else another time has been set since
            self._wake = None
            self._decide(acted=False)

    def _news(self) -> None:
        """Have newly committed tokens put on the session's stream. Called by the verifier."""
        if not self._preparing:
            self._preparing = True
            self._wire.prepare(self._put_news)

    def _put_news(self) -> None:
        """Put on the stream what was committed until now: also while the event waited for its turn, as shipped."""
        self._preparing = False
        session = self.session
        for run in session.news(self._heard):
            self._heard = run.position + len(run.tokens)
            how = run.details, session.ended_at(self._heard), run.forward
            event = Streamed(run.position, run.tokens, *how)
            self._wire.stream(SIZES.streamed.of(len(run.tokens)), partial(self._react, event))

    def _draft(self, step: DraftStep, tails: list[list[int]]) -> None:
        self.course.steps += 1
        self._run_step(step, tails, partial(self._drafted, step, tails))

    def _run_step(self, step: DraftStep, tails: Sequence[list[int]], then: Callable[[], None]) -> None:
        """Call `then` when the draft step is over."""
        self._world.at(self._world.now + self._draft_time(len(tails)), then)

    def _drafted(self, step: DraftStep, tails: list[list[int]]) -> None:
        assert self.controller is not None
        expansion = self._drafter.expand(self.controller.known[: step.length], tails, step.runners_up)
        read, self._before = self._before + len(tails), 0
        onward = step.onward(tails[0], expansion.proposals[0].token)
        if onward is not None:
            self._draft(step, [onward])
        self._react(Drafted(expansion._replace(read=read), onward is not None))
