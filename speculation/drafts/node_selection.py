"""Where in a tree of drafts to look further, how likely the text is to go through there, and the step that does it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speculation.drafts.acceptance_model import AcceptanceModel
from speculation.drafts.tree import DraftTree, TreeNode

FLOOR = 0.02  # chance below which nothing is looked behind


@dataclass(slots=True)
class DraftStep:
    """A draft step: one look behind each of `nodes`.

    Most often the next one leads on along the path, and to ask for it takes a good part of the time of a step. So
    whoever drafts may go on by itself, behind the first choice behind the first node: to tails of `until` tokens, a
    number that the pilot changes while the step is under way.
    """

    nodes: list[TreeNode]
    tails: list[list[int]]  # the tokens that lead to each node from the committed text
    length: int  # of the committed text that the tails follow
    runners_up: bool
    began: float
    until: int = 0

    def onward(self, tail: Sequence[int], token: int) -> list[int] | None:
        """The tail to look behind next without asking, now that `token` was found behind `tail`, the first one."""
        return [*tail, token] if len(tail) < self.until else None


def expandable_nodes(
    tree: DraftTree, acceptance_model: AcceptanceModel, runner_up: float, deepest: int, beyond_fork: int
) -> list[tuple[float, TreeNode]]:
    """Nodes less than `deepest` tokens behind the root that can be looked behind, with their chances, the best first.

    `runner_up`: share of misses in which the second choice is right. `beyond_fork`: places that are looked for on a
    line which leaves the path, from the fork on; 0: none leaves it.
    """
    found: list[tuple[float, TreeNode]] = []
    # Node, its chance, how the drafts before it went, its depth, and how many places its line still has.
    waiting = [(tree.root, 1.0, acceptance_model.recent, 0, deepest)] if deepest > 0 else []
    while waiting:
        node, chance, recent, depth, left = waiting.pop()
        if tree.is_open(node):
            found.append((chance, node))
        if not node.children or depth + 1 >= deepest:
            continue
        stands = chance * acceptance_model.chance(node.children[0], recent)
        if stands >= FLOOR and left > 1:
            waiting.append((node.children[0], stands, acceptance_model.then(recent, True), depth + 1, left - 1))
        falls = (chance - stands) * runner_up
        if len(node.children) > 1 and falls >= FLOOR and beyond_fork:
            waiting.append((node.children[1], falls, acceptance_model.then(recent, False), depth + 1, beyond_fork))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return found


def select_nodes(
    ranked: Sequence[tuple[float, TreeNode]], step_ms: Callable[[int], float], width: int
) -> list[TreeNode]:
    """Of places with their chances, the best first, as many as a wider step is worth, and `width` at most.

    `step_ms`: what a draft step over so many places takes. A place half as likely as the first is worth it if it adds
    less than half of a step.
    """
    nodes = [ranked[0][1]]
    for chance, node in ranked[1:width]:
        wider = step_ms(len(nodes) + 1) - step_ms(len(nodes))
        if chance / ranked[0][0] < wider / step_ms(1):
            break
        nodes.append(node)
    return nodes
