"""What the controller decides from: the text, its draft tree, the verifier's timeline, the step under way, estimates.

`DraftingState` also answers what follows from these at a moment: how many draft tokens the next request may carry, when
the draft step under way ends, whether a token should be drafted only to measure acceptance, and the plan for the next
request. `decisions` decides by these answers.
"""

from collections.abc import Sequence
from math import inf

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafts.committed_text import CommittedText
from specpair.speculation.drafts.node_selection import FLOOR, DraftStep
from specpair.speculation.drafts.tree import TreeNode
from specpair.speculation.policy.branches import BranchPolicy
from specpair.speculation.policy.draft_length import MAX_AUTO, DraftLength, DraftPlan, Prospects
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import VerifierTimeline

TICK = 5e-5  # seconds, the resolution of timers: a moment this close counts as come
_AHEAD = 6  # most further draft tokens that a plan considers waiting for
_SHADOW = 8  # committed tokens after which one token is drafted although no draft pays, to measure acceptance
# The same where draft steps and passes take turns on the same cores: the draft model has to read the text first, and a
# token takes about this share of a draft step. Reading may take this share of the verifier's time.
_READS, _SHADOW_SHARE = 0.5, 0.02


class DraftingState:
    """Where the drafting of one text stands."""

    def __init__(
        self,
        text: CommittedText,
        limit: int,
        latencies: LatencyModel,
        length: DraftLength,
        *,
        mechanisms: Mechanisms,
        timeline: VerifierTimeline,
        branches: BranchPolicy,
    ) -> None:
        """`limit`: most tokens of the text, prompt included."""
        self.text, self.latencies, self.length = text, latencies, length
        self.mechanisms, self.timeline, self.branches = mechanisms, timeline, branches
        self.step: DraftStep | None = None  # under way
        self._limit = limit
        self._cached_plan: tuple[float, DraftPlan | None] | None = None

    def changed(self) -> None:
        """Something happened that the plan depends on."""
        self._cached_plan = None

    def update_prospects(self) -> None:
        """Compute the prospects anew from the present estimates."""
        chances = self.branches.levels([], self.text.chances(ahead=MAX_AUTO + 1), 0)
        self.length.update(self.latencies, chances, self.mechanisms, self.text.ready_share)
        self.branches.update()

    @property
    def prospects(self) -> Prospects:
        """The best rate that the estimates allow, and what reaches it."""
        return self.length.prospects

    @property
    def room(self) -> int:
        """Most draft tokens that the next request may carry."""
        return self.length.room(self._limit - len(self.text.known))

    def skip(self, now: float) -> int:
        """Tokens behind the known text that are committed before the pass begins for a request that leaves now."""
        return self.timeline.starts([now], now)[0].position - len(self.text.known)

    def deepest(self, now: float, most: int | None = None) -> int:
        """Most draft tokens behind the known text that the next request could carry.

        `most`: most draft tokens that the verifier should judge for it; None: as many as of the draft model.
        """
        skip = self.skip(now)
        if most is None:
            most = self.length.cap + (sum(forced(self.text.tree.main()[skip:])) if self.length.fixed is None else 0)
        return min(skip + most, self.room)

    def reading(self, node: TreeNode) -> float:
        """Seconds that the draft model reads forced tokens before it drafts behind `node`."""
        return self.latencies.reading(node.forced())

    def step_late_at(self) -> float:
        """The time (s) at which the draft step under way is overdue by a verifier pass; infinity if there is no step.

        A draft step is overdue where the draft model has to read a prompt first.
        """
        if self.step is None:
            return inf
        return self.step_ends() + self.latencies.verify(0)

    def step_ends(self) -> float:
        """The time (s) at which the draft step under way should end."""
        assert self.step is not None
        reading = max(self.reading(node) for node in self.step.nodes)
        return self.step.began + reading + self.latencies.draft(len(self.step.nodes))

    def send_from(self, now: float) -> float:
        """The time (s) to send a request so that it arrives as the verifier becomes free. Sooner gains nothing."""
        return self.timeline.starts([now], now)[0].at - self.latencies.link / 2 - self.latencies.margin

    def shadow_is_due(self, now: float) -> bool:
        """Whether to draft one token although no draft pays, to see whether it would be accepted."""
        if self.length.fixed is not None or self.room <= 0 or self.step is not None:
            return False
        if not self.text.tree.is_open(self.text.tree.root):
            return False
        draft, verify, patience = self.latencies.draft(), self.latencies.verify(0), float(_SHADOW)
        if self.mechanisms.same_cores and _READS * draft > _SHADOW_SHARE * verify:
            return False
        if self.timeline.waits(now):  # drafting keeps a waiting verifier idle
            patience = max(patience, _SHADOW * draft / (0.16 * verify))
        return self.text.untested >= patience

    def plan(self, now: float) -> DraftPlan | None:
        """The best plan for the next verify request; None where no draft pays."""
        if self._cached_plan is None or self._cached_plan[0] != now:
            self._cached_plan = now, self._make_plan(now)
        return self._cached_plan[1]

    def _make_plan(self, now: float) -> DraftPlan | None:
        main, waited_for = self.text.tree.main(), self.timeline.waits(now)
        made, draft, tip = len(main), self.latencies.draft(), self.text.tip(main)
        # The verifier may write tokens by itself before the draft arrives; only those behind count.
        unreached = max(0, self.skip(now) - made)
        ahead = min(self.deepest(now) - made, unreached + _AHEAD) if self.text.tree.is_open(tip) else 0
        chances = self.text.chances(main, max(0, ahead))
        if not waited_for and chances[made] < FLOOR:
            ahead = 0
        reading = self.reading(tip)
        first = now + reading + draft
        if self.step is not None:
            over = max(now, self.step_ends())
            first = over if tip in self.step.nodes else over + reading + draft
        # The end of a running pass is uncertain, so a draft token must be done a margin before it to count.
        slack = 0.0 if waited_for else self.latencies.margin
        moments = [now, *(first + slack + number * draft for number in range(ahead))]
        starts = self.timeline.starts(moments, now)
        known = len(self.text.known)
        return self.length.plan(
            starts,
            self.branches.levels(main, chances, starts[0].position - known),
            made,
            known=known,
            room=self.room,
            waited_for=waited_for,
            latencies=self.latencies,
            forced=forced(main),
            predicted=predicted(main),
        )


def forced(path: Sequence[TreeNode]) -> list[bool]:
    """For each draft token of `path`, whether the grammar lets it alone stand there."""
    return [node.source is DraftSource.GRAMMAR for node in path]


def predicted(path: Sequence[TreeNode]) -> bool:
    """Whether a draft token of `path` is from the client's prediction."""
    return any(node.source is DraftSource.PREDICTION for node in path)
