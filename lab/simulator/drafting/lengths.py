"""How long drafts are: one interface for policies of the literature, beside our controller's own decision.

The real controller follows them, with all mechanisms that the mode has: in lockstep as they were published, and
pipelined. A policy of your own is a class derived from `LengthPolicy`.
"""

from collections.abc import Sequence
from typing import Any

from specpair.speculation.policy.draft_length import DraftLength, DraftPlan
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import PassStart


class LengthPolicy:
    """Decides the length of each draft of one text."""

    def most(self, latencies: LatencyModel) -> int:
        """Most tokens of the next draft, 1 or more. `latencies`: what was measured so far."""
        raise NotImplementedError

    def enough(self, chance: float) -> bool:
        """Whether a draft is sent as it is, although `most` allows more.

        `chance`: predicted, 0 to 1, that all its tokens are accepted.
        """
        return False

    def judged(self, drafted: int, accepted: int) -> None:
        """Learn what became of a draft: how many of its tokens were judged, and how many of these accepted."""


class PolicyLength(DraftLength):
    """The draft length of one text, as a policy decides it."""

    def __init__(self, policy: LengthPolicy, max_drafts: int) -> None:
        """`max_drafts`: most draft tokens in one request."""
        super().__init__(1, max_drafts)
        self.policy = policy

    def update(
        self, latencies: LatencyModel, chances: Sequence[float], mechanisms: Mechanisms, next_draft_ready: float
    ) -> None:
        super().update(latencies, chances, mechanisms, next_draft_ready)
        self.fixed = self.policy.most(latencies)

    def plan(
        self,
        starts: Sequence[PassStart],
        chances: Sequence[float],
        made: int,
        *,
        known: int,
        **options: Any,
    ) -> DraftPlan | None:
        skip = starts[0].position - known
        if made > skip and self.policy.enough(chances[made] / chances[skip]):
            return DraftPlan(0, skip)
        return super().plan(starts, chances, made, known=known, **options)

    def to_send(self, latencies: LatencyModel, chances: Sequence[float], since: int, *args: Any, **options: Any) -> int:
        most = super().to_send(latencies, chances, since, *args, **options)
        reached = (at for at in range(since + 1, most) if self.policy.enough(chances[at] / chances[since]))
        return next(reached, most)
