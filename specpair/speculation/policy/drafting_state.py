"""The controller's state: the text, its draft tree, the verifier's timeline, the step under way, estimates.

`DraftingState` also answers what follows from these at a moment: how many draft tokens the next request may carry, when
the draft step under way ends, whether a token should be drafted only to measure acceptance, and the plan for the next
request. `BranchPolicy` chooses what of the tree beside its likeliest path is worth drafting and sending, by the same
rule as a node of the path (`draft_length`): the chance that the text passes through it against the time that it adds to
the pass. `decisions` decides by these answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

from specpair.speculation.draft import Draft, TreeLimits
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.node_selection import (
    FLOOR,
    DraftStep,
    SideNode,
    select_nodes,
    side_nodes,
    tree_levels,
)
from specpair.speculation.drafting.tree import TreeNode, draft_of
from specpair.speculation.policy.draft_length import MAX_AUTO, DraftLength, DraftPlan, Prospects
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft, VerifierTimeline

_CANDIDATES = 96  # most nodes beside the likeliest path that are considered
# Share of the time of a draft step that another branch may add, at most, where branches are sent. Each wide step delays
# all that follow: with 0.19 and 0.37, trees brought 4 to 8 % fewer tokens per second than chains (`latency_sweep`).
_WIDER = 0.1


@dataclass(eq=False, slots=True)
class BranchPolicy:
    """The branches of one text's draft tree."""

    text: CommittedText
    length: DraftLength
    latencies: LatencyModel
    drafts_in_flight: Sequence[InFlightDraft]  # the caller's list, which changes
    width: int  # most tree nodes that one draft step can expand; 0: drafts are chains
    limits: TreeLimits  # what the verifier takes of a tree
    pay: bool = False  # whether a runner-up of which nothing is known is worth sending

    def update(self) -> None:
        """Decide anew whether branches pay."""
        if self.width:
            runner_up = (1.0 - self.text.typical) * self.text.acceptance.runners_up.shares[0]
            worth = self.length.side_count([runner_up], max(1, self.length.best), 1.0) > 0
            self.pay = worth and self.latencies.wider <= _WIDER

    def worthwhile(self, path: Sequence[TreeNode], chances: Sequence[float], skip: int) -> list[SideNode]:
        """The nodes beside a path that are worth sending with it, each behind its parent, and those that they follow.

        Arguments as for `side_nodes`.
        """
        if not self.pay:
            return []
        root, acceptance = self.text.tree.root, self.text.acceptance
        found = list(islice(side_nodes(root, path, chances, acceptance, skip, self._in_flight), _CANDIDATES))
        end = path[skip - 1] if 0 < skip <= len(path) else root
        groups: dict[int, list[SideNode]] = {}  # by where the text stands when the pass begins
        for each in found:
            if each.level > skip:
                groups.setdefault(id(each.behind), []).append(each)
        chosen: set[int] = set()
        for group in groups.values():
            fresh = path[skip:] if group[0].behind is end else []
            count = self.length.side_count([each.chance for each in group], len(fresh), group[0].given)
            chosen.update(id(each.node) for each in self._taken(fresh, group[:count]))
        nodes: list[SideNode] = []
        for each in reversed(found):
            if id(each.node) in chosen:
                nodes.append(each)
                parent = None if each.node.parent is None else each.node.parent()
                chosen.add(id(parent))
        return nodes[::-1]

    def levels(self, main: Sequence[TreeNode], chances: Sequence[float], skip: int) -> Sequence[float]:
        """Chances that the text is in the tree after 0, 1, … draft tokens.

        `main`: the likeliest path.
        `chances`: of the path, and of tokens that it does not have yet.
        `skip`: as for `side_nodes`.
        """
        if not self.pay:
            return chances
        made, levels = len(main), list(chances)
        for each in self.worthwhile(main, chances[: made + 1], skip):
            if skip < each.level <= made:
                levels[each.level] += each.chance
        law = tree_levels(self.text.typical, self.text.acceptance.runners_up.shares, self.width, MAX_AUTO + 1)
        for depth in range(made + 1, len(levels)):
            ahead = min(max(1, depth - skip), len(law) - 1)
            levels[depth] = levels[depth - 1] * law[ahead] / law[ahead - 1]
        return levels

    def with_tip(self, tip: TreeNode, ranked: Sequence[tuple[float, TreeNode]]) -> list[TreeNode]:
        """The nodes of the draft step that expands `tip`, the end of the likeliest path.

        `ranked`: open nodes with their chances, the likeliest first.
        """
        ranked = sorted(ranked, key=lambda each: each[1] is not tip)
        return select_nodes(ranked, self.latencies.draft, self.width) if ranked and ranked[0][1] is tip else [tip]

    def _taken(self, fresh: Sequence[TreeNode], beside: Sequence[SideNode]) -> Sequence[SideNode]:
        """The nodes of `beside` that the verifier takes with `fresh`, the nodes of the path that it judges."""
        if self.limits == TreeLimits():
            return beside
        tree = Draft(0, draft_of([*fresh, *(each.node for each in beside)], drawn=False))
        return beside[: max(0, len(tree.cut(self.limits)) - len(fresh))]

    def _in_flight(self, node: TreeNode) -> bool:
        """Whether a request that waits for its response holds the node."""
        return any(node.request is each and not each.stale for each in self.drafts_in_flight)


TICK = 5e-5  # seconds, the resolution of timers: a moment this close counts as come
_AHEAD = 6  # most further draft tokens that a plan considers waiting for
_SHADOW = 8  # committed tokens after which one token is drafted although no draft pays, to measure acceptance
# The same where draft steps and passes take turns on the same cores: the draft model has to read the text first, and a
# token takes about this share of a draft step. Reading may take this share of the verifier's time.
_READS, _SHADOW_SHARE = 0.5, 0.02


@dataclass(eq=False, slots=True)
class DraftingState:
    """The state of the drafting of one text."""

    text: CommittedText
    limit: int  # most tokens of the text, prompt included
    latencies: LatencyModel
    length: DraftLength
    mechanisms: Mechanisms
    timeline: VerifierTimeline
    branches: BranchPolicy
    step: DraftStep | None = None  # under way
    _cached_plan: tuple[float, DraftPlan | None] | None = None

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
        """The best rate that the estimates allow, with the settings that reach this rate."""
        return self.length.prospects

    @property
    def room(self) -> int:
        """Most draft tokens that the next request may carry."""
        return self.length.room(self.limit - len(self.text.known))

    def skip(self, now: float) -> int:
        """Tokens behind the known text that are committed before the pass begins for a request that leaves now."""
        return self.timeline.starts([now], now)[0].position - len(self.text.known)

    def deepest(self, now: float, most: int | None = None) -> int:
        """Most draft tokens behind the known text that the next request could carry.

        `most`: most draft tokens that the verifier should judge for it; None: as many as of the draft model.
        """
        skip = self.skip(now)
        if most is None:
            most = self.length.cap(self.text.tree.main()[skip:])
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
            main,
            self.branches.levels(main, chances, starts[0].position - known),
            known=known,
            room=self.room,
            waited_for=waited_for,
        )
