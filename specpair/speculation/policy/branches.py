"""Choose what of the draft tree beside its likeliest path is worth drafting and sending.

A node beside the path is worth its place in a pass by the same rule as one of the path (`draft_length`): the chance
that the text passes through it against the time that it adds to the pass.
"""

from collections.abc import Sequence
from itertools import islice

from specpair.speculation.draft import Draft, TreeLimits
from specpair.speculation.drafts.committed_text import CommittedText
from specpair.speculation.drafts.node_selection import SideNode, select_nodes
from specpair.speculation.drafts.tree import TreeNode, draft_of
from specpair.speculation.policy.draft_length import MAX_AUTO, DraftLength
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft

_CANDIDATES = 96  # most nodes beside the likeliest path that are considered
# Share of the time of a draft step that another branch may add, at most, where branches are sent. Each wide step delays
# all that follow: with 0.19 and 0.37, trees brought 4 to 8 % fewer tokens per second than chains (`latency_sweep`).
_WIDER = 0.1


class BranchPolicy:
    """The branches of one text's draft tree."""

    def __init__(
        self,
        text: CommittedText,
        length: DraftLength,
        latencies: LatencyModel,
        drafts_in_flight: Sequence[InFlightDraft],
        width: int,
        limits: TreeLimits = TreeLimits(),
    ) -> None:
        """`drafts_in_flight`: the caller's list, which changes.
        `width`: most tree nodes that one draft step can expand; 0: drafts are chains.
        `limits`: what the verifier takes of a tree.
        """
        self._text, self._length, self._latencies = text, length, latencies
        self._drafts_in_flight, self._width, self._limits = drafts_in_flight, width, limits
        self.pay = False  # whether a runner-up of which nothing is known is worth sending

    def update(self) -> None:
        """Decide anew whether branches pay."""
        if self._width:
            runner_up = (1.0 - self._text.typical) * self._text.runner_up
            worth = self._length.beside(self._latencies, [runner_up], max(1, self._length.best), 1.0) > 0
            self.pay = worth and self._latencies.wider <= _WIDER

    def beside(self, path: Sequence[TreeNode], chances: Sequence[float], skip: int) -> list[SideNode]:
        """The nodes beside a path that are worth sending with it, each behind its parent, and those that they follow.

        Arguments as for `side_nodes`.
        """
        if not self.pay:
            return []
        found = list(islice(self._text.side_nodes(path, chances, skip, self._in_flight), _CANDIDATES))
        end = path[skip - 1] if 0 < skip <= len(path) else self._text.tree.root
        groups: dict[int, list[SideNode]] = {}  # by where the text stands when the pass begins
        for each in found:
            if each.level > skip:
                groups.setdefault(id(each.behind), []).append(each)
        chosen: set[int] = set()
        for group in groups.values():
            fresh = path[skip:] if group[0].behind is end else []
            count = self._length.beside(self._latencies, [each.chance for each in group], len(fresh), group[0].given)
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
        for each in self.beside(main, chances[: made + 1], skip):
            if skip < each.level <= made:
                levels[each.level] += each.chance
        law = self._text.levels(self._width, MAX_AUTO + 1)
        for depth in range(made + 1, len(levels)):
            ahead = min(max(1, depth - skip), len(law) - 1)
            levels[depth] = levels[depth - 1] * law[ahead] / law[ahead - 1]
        return levels

    def with_tip(self, tip: TreeNode, ranked: Sequence[tuple[float, TreeNode]]) -> list[TreeNode]:
        """The nodes of the draft step that expands `tip`, the end of the likeliest path.

        `ranked`: open nodes with their chances, the likeliest first.
        """
        first = next((each for each in ranked if each[1] is tip), None)
        if first is None:
            return [tip]
        others = [each for each in ranked if each[1] is not tip]
        return select_nodes([first, *others], self._latencies.draft, self._width)

    def _taken(self, fresh: Sequence[TreeNode], beside: Sequence[SideNode]) -> Sequence[SideNode]:
        """What the verifier takes of the nodes `beside` those of the path that it judges with them, `fresh`."""
        if self._limits == TreeLimits():
            return beside
        tree = Draft(0, draft_of([*fresh, *(each.node for each in beside)], drawn=False))
        return beside[: max(0, len(tree.cut(self._limits)) - len(fresh))]

    def _in_flight(self, node: TreeNode) -> bool:
        """Whether a request that waits for its response holds the node."""
        return any(node.request is each and not each.stale for each in self._drafts_in_flight)
