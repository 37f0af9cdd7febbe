"""Server-side drafting in virtual time: the shipped rounds, with the draft engine and the verifier of one server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from lab.simulator.virtual.draft_engine import DraftEngine, fed_tokens
from lab.simulator.virtual.world import EventLoop, Verifier, World
from specpair.drafters.base import Drafter
from specpair.protocol.errors import Overloaded, SpecPairError
from specpair.speculation.draft import Draft, DraftSource
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.draft_length import MAX_AUTO
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.head_drafts import HeadQuestion
from verifier_server.generation.draft_model import PASS_TOKENS
from verifier_server.generation.pass_costs import PassCosts
from verifier_server.generation.round_policy import RoundPolicy, RoundText
from verifier_server.generation.rounds import DraftPass, Rounds, TargetPass
from verifier_server.sessions import Session


@dataclass(eq=False, slots=True)
class VirtualMember:
    """A text of the rounds, from its prompt to its end."""

    session: Session
    position: int  # tokens of the text that need not be reported
    drafter: Drafter | None  # None: only the target's head drafts
    acceptance: AcceptanceModel
    report: Callable[[Answer, Draft], object]  # takes each answer, with the draft that it answers
    # Called where the verifier is overloaded and does not take the text, which has left then. None: that is an error.
    refused: Callable[[Overloaded], object] | None = None
    held: int = 0  # tokens of the text that the draft model's slot holds, without `tail`
    lookups: Lookups | None = None  # where draft tokens are looked up; None: nowhere
    tail: list[int] = field(default_factory=list)
    request: Request | None = None  # that is not answered
    opened: Answer | None = None  # to the prefill
    text: RoundText | None = None  # once both models have read the prompt
    left: bool = False

    def feed(self, known: Sequence[int], tail: list[int]) -> tuple[int, int]:
        """What a draft pass feeds behind the text `known` and `tail`, and how much it holds."""
        length = len(known)
        fed = fed_tokens(known[self.held :], self.tail, tail)
        self.held, self.tail = length, tail
        return fed, length + len(tail) - fed


class VirtualRounds:
    """The rounds of one server."""

    def __init__(
        self,
        clock: EventLoop,
        verifier: Verifier | World,
        engine: DraftEngine | None,
        pass_times: Sequence[float],
        *,
        overlaps: bool,
    ) -> None:
        """`engine`: of the draft model; None: only the target's head drafts.
        `pass_times`, `overlaps`: as for `PassCosts` and `RoundPolicy`.
        """
        self._clock, self._verifier, self._engine = clock, verifier, engine
        depth, step_times = verifier.backend.head_depth, dict[DraftSource, float]()
        if depth:
            step_times[DraftSource.HEAD] = verifier.head_time
        if engine is not None:
            step_times[DraftSource.MODEL] = engine.step_time
        # Seconds of a draft step, of the fastest source, as `SharedDraftModel` has it.
        self.step_time = min(step_times.values())
        self._depths = {DraftSource.HEAD: depth, DraftSource.MODEL: 0 if engine is None else MAX_AUTO}
        self._rounds = Rounds(RoundPolicy(PassCosts(pass_times, step_times), overlaps))
        self._members: dict[RoundText, VirtualMember] = {}
        self._opening: list[Request] = []  # prefills for the next pass
        self._wakes: float | None = None

    def read(self, member: VirtualMember) -> None:
        """Have the draft model read what it does not hold of the text so far, chunk by chunk."""
        engine = self._engine
        if engine is None:
            return
        chunk = min(member.position - member.held, PASS_TOKENS)

        def over() -> None:
            if not member.left:
                member.held += chunk
                self.read(member)
                self._join(member)

        if chunk > 0:
            engine.run([(chunk, member.held)], over)

    def write(self, member: VirtualMember) -> None:
        """Have the target read the text so far; once the draft model has, too, it is written with the others."""
        member.request = Request(member.session, Draft(member.position), partial(self._opened, member))
        self._opening.append(member.request)
        self._soon()

    def leave(self, member: VirtualMember) -> None:
        """Forget a text, which has ended or is written no longer."""
        member.left = True
        if member.request is not None:
            member.request.cancelled = True
        if member.text is not None and self._members.pop(member.text, None) is not None:
            self._rounds.leave(member.text)
            self._soon()

    # How a text begins.

    def _opened(self, member: VirtualMember, result: Answer | SpecPairError) -> None:
        if member.left:
            return
        if isinstance(result, Overloaded) and member.refused is not None:
            self.leave(member)
            member.refused(result)
            return
        member.request, member.opened = None, _answer(result)
        self._join(member)

    def _join(self, member: VirtualMember) -> None:
        """Take the text in and report the answer to its prefill, once both models have read it."""
        answer, session = member.opened, member.session
        if answer is None or (self._engine is not None and member.held < member.position):
            return
        if answer.finish_reason is None:
            known = [*session.tokens[: member.position], *answer.tokens]
            ends = self._verifier.backend.vocabulary.ends
            text = CommittedText(known, ends, member.lookups, member.acceptance)
            max_drafts = self._verifier.scheduler.max_drafts
            member.text = RoundText(text, member.acceptance, session.limit, max_drafts, self._depths)
            self._members[member.text] = member
            self._rounds.join(member.text)
            self._soon()
        else:
            self.leave(member)
        member.report(answer, Draft(member.position))

    # Its rounds.

    def _soon(self) -> None:
        """Call `_look` after all events of this moment."""
        self._clock.at(self._clock.now, self._look)

    def _look(self) -> None:
        """Begin the passes that are due."""
        while (due := self._rounds.next(self._clock.now)) is not None:
            if isinstance(due, TargetPass):
                self._judge(due)
            elif due.source is DraftSource.HEAD:
                self._ask_head(due)
            else:
                self._draft(due)
        if not self._members and self._opening:
            self._submit()
        wakes = self._rounds.wake_at
        if wakes is not None and wakes != self._wakes:
            self._clock.at(wakes, self._look)
        self._wakes = wakes

    def _ask_head(self, due: DraftPass) -> None:
        began = self._clock.now
        asked = [
            HeadQuestion(self._members[text].session, len(text.text.known), tail, 1)
            for text, tail in zip(due.texts, due.tails, strict=True)
        ]

        def over(proposals: Sequence[Proposal | None]) -> None:
            self._rounds.drafted(proposals, len(asked), began, self._clock.now)
            self._look()

        self._verifier.ask_head(asked, over)
        self._clock.at(began, self._verifier.look)

    def _draft(self, due: DraftPass) -> None:
        assert self._engine is not None, "a draft pass of a model has one"
        began = self._clock.now
        asked = [
            (self._members[text], text.text.known[:], tail) for text, tail in zip(due.texts, due.tails, strict=True)
        ]
        batch = [member.feed(known, tail) for member, known, tail in asked]

        def over() -> None:
            proposals = [
                None if member.drafter is None else member.drafter.expand(known, [tail], 1).proposals[0]
                for member, known, tail in asked
            ]
            self._rounds.drafted(proposals, sum(fed for fed, _ in batch), began, self._clock.now)
            self._look()

        self._engine.run(batch, over)

    def _judge(self, due: TargetPass) -> None:
        requests = []
        for text, draft in zip(due.texts, due.drafts, strict=True):
            member = self._members[text]
            member.request = Request(member.session, draft, partial(self._answered, text), admitted=True)
            requests.append(member.request)
        self._submit(*requests)

    def _submit(self, *requests: Request) -> None:
        """Submit the requests of a pass, with the prefills that wait for one."""
        opening, self._opening = self._opening, []
        for each in (*requests, *opening):
            if each.cancelled:
                continue
            try:
                self._verifier.scheduler.submit(each, self._clock.now)
            except Overloaded as error:
                each.done(error)
        self._clock.at(self._clock.now, self._verifier.look)

    def _answered(self, text: RoundText, result: Answer | SpecPairError) -> None:
        member = self._members.get(text)
        if member is None or member.request is None:  # it has left
            return
        answer, request, member.request = _answer(result), member.request, None
        self._rounds.answered(text, answer, self._clock.now)
        if answer.finish_reason is not None:
            self.leave(member)
        member.report(answer, request.draft)
        self._soon()


def _answer(result: Answer | SpecPairError) -> Answer:
    if isinstance(result, SpecPairError):
        raise result
    return result
