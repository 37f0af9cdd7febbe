"""Rank and select the nodes of the draft tree to expand, and describe the draft step that expands them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specpair.speculation.drafts.acceptance_model import AcceptanceModel, recent_after
from specpair.speculation.drafts.tree import DraftTree, TreeNode

FLOOR = 0.02  # chance, that the text passes through a node, below which it is not expanded
# The same where branches are sent: where one pays, passes and draft steps cost little more for many.
BRANCH_FLOOR = 0.005


@dataclass(slots=True)
class DraftStep:
    """A draft step: one proposal behind each of `nodes`.

    Most often the next step continues along the path, and asking the controller for it takes a good part of the time of
    a step. So the executor may start the next step by itself, behind the proposal for the first node, while the tail
    of that node has fewer than `until` tokens.

    The controller may write `until` in one thread while the executor reads it in another. Either value is right: a step
    that the executor began by itself is taken in as such (`SpeculationController.drafted`), and where it stopped too
    early it asks for the next one.
    """

    nodes: list[TreeNode]
    tails: list[list[int]]  # for each node, the tokens that lead to it from the committed text
    length: int  # tokens of the committed text, which the tails follow
    runners_up: int  # how many choices after the first are wanted
    began: float  # seconds on the caller's clock
    until: int = 0  # tokens of the tail up to which draft steps continue without asking the controller

    def onward(self, tail: Sequence[int], token: int) -> list[int] | None:
        """The tail of the next step, now that `token` was predicted behind the first tail; None: ask the controller."""
        return [*tail, token] if len(tail) < self.until else None


def expandable_nodes(
    tree: DraftTree, acceptance_model: AcceptanceModel, deepest: int, beyond_fork: int, floor: float = FLOOR
) -> list[tuple[float, TreeNode]]:
    """Open nodes less than `deepest` tokens behind the root, with the chance that the text passes through, best first.

    `beyond_fork`: most nodes considered of a branch that leaves the likeliest path, from the fork on; 0: they are
    ignored.
    """
    found: list[tuple[float, TreeNode]] = []
    # Node, its chance, `recent` at it, its depth, and how many nodes its branch may still have.
    waiting = [(tree.root, 1.0, acceptance_model.recent, 0, deepest)] if deepest > 0 else []
    while waiting:
        node, chance, recent, depth, left = waiting.pop()
        if tree.is_open(node):
            found.append((chance, node))
        if not node.children or depth + 1 >= deepest:
            continue
        accepted = chance * acceptance_model.chance(node.children[0], recent)
        if accepted >= floor and left > 1:
            waiting.append((node.children[0], accepted, recent_after(recent, True), depth + 1, left - 1))
        if not beyond_fork:
            continue
        for share, other in zip(acceptance_model.runners_up.chances(node.children), node.children[1:], strict=False):
            recovered = (chance - accepted) * share
            if recovered >= floor:
                waiting.append((other, recovered, recent_after(recent, False), depth + 1, beyond_fork))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return found


def select_nodes(
    ranked: Sequence[tuple[float, TreeNode]], step_time: Callable[[int], float], width: int
) -> list[TreeNode]:
    """The nodes that the next draft step should expand: the first of `ranked` (best first), `width` at most.

    `step_time(n)`: seconds of a draft step over n nodes. A node half as likely as the first is worth a wider step if
    it adds at most half the time of a step over one node.
    """
    nodes = [ranked[0][1]]
    for chance, node in ranked[1:width]:
        wider = step_time(len(nodes) + 1) - step_time(len(nodes))
        if chance / ranked[0][0] < wider / step_time(1):
            break
        nodes.append(node)
    return nodes
