"""The target's own head in virtual time: the shipped questions; time and agreement are modelled."""

from collections.abc import Callable, Sequence

from lab.simulator.costs.cost import PassCost
from specpair.speculation.drafting.tree import Proposal
from verifier_server.engine.head_drafts import HeadDrafts, HeadQuestion
from verifier_server.engine.scheduler import Scheduler


class VirtualHead(HeadDrafts):
    """Answers as the shipped one: where it could draft, a law says what. It adds up the time of its steps."""

    def __init__(
        self, scheduler: Scheduler, cost: PassCost, propose: Callable[[HeadQuestion], Proposal | None]
    ) -> None:
        """`cost`: of a step. `propose`: what the head drafts."""
        super().__init__(scheduler.backend, scheduler.slots)
        self._cost, self._propose = cost, propose
        self.spent = 0.0  # seconds of all steps so far

    def answer(self, asked: Sequence[HeadQuestion]) -> list[Proposal | None]:
        self.spent += self._cost.seconds([(1, each.position + len(each.tail) - 1) for each in asked])
        found = super().answer(asked)
        return [None if each is None else self._propose(question) for question, each in zip(asked, found, strict=True)]
