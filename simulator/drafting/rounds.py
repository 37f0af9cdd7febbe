"""Server-side drafting in virtual time: the rounds that ship, with the draft engine and the scheduler of one server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from simulator.drafting.engine import Clock, DraftEngine
from specpair.drafters.base import Drafter
from specpair.protocol.errors import SpecPairError
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.draft import Draft
from verifier_server.engine.requests import Answer, Request
from verifier_server.generation.rounds.costs import PassCosts
from verifier_server.generation.rounds.policy import RoundPolicy
from verifier_server.generation.rounds.rounds import DraftPass, Rounds, TargetPass
from verifier_server.generation.rounds.text import RoundText
from verifier_server.sessions import Session


class Submits(Protocol):
    """Takes requests that can share a pass."""

    def __call__(self, requests: Sequence[Request]) -> object: ...


@dataclass(eq=False, slots=True)
class VirtualMember:
    """A text of the rounds. `held`: tokens of the text that the draft model's slot holds, without `tail`."""

    text: RoundText
    session: Session
    drafter: Drafter
    report: Callable[[Answer, Draft], object]  # takes each answer, with the draft that it answers
    held: int = 0
    tail: list[int] = field(default_factory=list)
    request: Request | None = None  # that is not answered

    def feed(self, length: int, tail: list[int]) -> tuple[int, int]:
        """What a draft pass feeds behind the first `length` tokens of the text and `tail`, and how much it holds."""
        new = self.text.text.known[self.held : length]
        agree = common_prefix(new, self.tail)
        held = self.held + agree + (common_prefix(self.tail[agree:], tail) if agree == len(new) else 0)
        fed = max(1, length + len(tail) - held)
        self.held, self.tail = length, tail
        return fed, length + len(tail) - fed


class VirtualRounds:
    """The rounds of one server."""

    def __init__(
        self, clock: Clock, submit: Submits, engine: DraftEngine, pass_times: Sequence[float], *, overlaps: bool
    ) -> None:
        """`pass_times`, `overlaps`: as for `PassCosts` and `RoundPolicy`."""
        self._clock, self._submit, self._engine = clock, submit, engine
        self._rounds = Rounds(RoundPolicy(PassCosts(pass_times, engine.step_time), overlaps))
        self._members: dict[RoundText, VirtualMember] = {}
        self._opening: list[Request] = []  # prefills for the next pass
        self._wakes: float | None = None

    def open(self, request: Request) -> None:
        """Submit a prefill with the next pass."""
        self._opening.append(request)
        self._soon()

    def join(self, member: VirtualMember) -> None:
        self._members[member.text] = member
        self._rounds.join(member.text)
        self._soon()

    def leave(self, member: VirtualMember) -> None:
        """Forget a text, which has ended or is written no longer."""
        if self._members.pop(member.text, None) is not None:
            if member.request is not None:
                member.request.cancelled = True
            self._rounds.leave(member.text)
            self._soon()

    def _soon(self) -> None:
        """Look once what happens at this moment has happened."""
        self._clock.at(self._clock.now, self._look)

    def _look(self) -> None:
        """Begin the passes that are due."""
        while (due := self._rounds.next(self._clock.now)) is not None:
            if isinstance(due, DraftPass):
                self._draft(due)
            else:
                self._judge(due)
        if not self._members and self._opening:
            self._flush()
        wakes = self._rounds.wake_at
        if wakes is not None and wakes != self._wakes:
            self._clock.at(wakes, self._look)
        self._wakes = wakes

    def _draft(self, due: DraftPass) -> None:
        began, members = self._clock.now, [self._members[each] for each in due.texts]
        lengths = [len(each.text.known) for each in due.texts]
        batch = [each.feed(length, tail) for each, length, tail in zip(members, lengths, due.tails, strict=True)]

        def over() -> None:
            proposals = [
                each.drafter.expand(each.text.text.known[:length], [tail], 1).proposals[0]
                for each, length, tail in zip(members, lengths, due.tails, strict=True)
            ]
            self._rounds.drafted(proposals, sum(fed for fed, _ in batch), began, self._clock.now)
            self._look()

        self._engine.run(batch, over)

    def _judge(self, due: TargetPass) -> None:
        requests = []
        for text, draft in zip(due.texts, due.drafts, strict=True):
            member = self._members[text]
            member.request = Request(member.session, draft, partial(self._answered, member), admitted=True)
            requests.append(member.request)
        self._flush(*requests)

    def _flush(self, *requests: Request) -> None:
        opening, self._opening = self._opening, []
        self._submit([*requests, *opening])

    def _answered(self, member: VirtualMember, result: Answer | SpecPairError) -> None:
        request, member.request = member.request, None
        if isinstance(result, SpecPairError):
            raise result
        if request is None or member.text not in self._members:
            return
        self._rounds.answered(member.text, result, self._clock.now)
        if result.finish_reason is not None:
            self.leave(member)
        member.report(result, request.draft)
        self._soon()
