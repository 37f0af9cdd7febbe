"""Ranks and selects nodes of the draft tree: those to expand in a draft step, and those to send beside the path.

A request holds what may follow all that is known. Of its tree the verifier judges what is left when the pass begins:
what follows the text as the passes before have made it. So a node beside the path counts by its level: by how many
tokens it follows the last one in flight, if the text takes that way, as the likeliest path is counted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush, nlargest
from itertools import count
from typing import NamedTuple

from specpair.speculation.drafting.acceptance_model import AcceptanceModel, recent_after
from specpair.speculation.drafting.tree import DraftTree, TreeNode

FLOOR = 0.02  # chance, that the text passes through a node, below which it is not expanded
# The same where branches are sent: where one pays, passes and draft steps cost little more for many.
BRANCH_FLOOR = 0.005


@dataclass(slots=True)
class DraftStep:
    """A draft step: the drafter proposes a token behind each of `nodes`.

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


class SideNode(NamedTuple):
    """A node, with the `chance` that the text passes through it.

    `level`: of the token of the likeliest path that a pass would judge together with it; 0: it is in flight.
    `behind`: the node that the text has reached when the pass begins that may judge this one.
    `given`: the chance of that.
    `recent`, `unsent`: `AcceptanceModel.recent` behind it, and how many nodes up to it are behind those in flight.
    """

    node: TreeNode
    chance: float
    level: int
    behind: TreeNode
    given: float
    recent: float
    unsent: int


def side_nodes(
    root: TreeNode,
    path: Sequence[TreeNode],
    chances: Sequence[float],
    acceptance_model: AcceptanceModel,
    skip: int,
    in_flight: Callable[[TreeNode], bool],
) -> Iterator[SideNode]:
    """The nodes beside `path`, the likeliest one from the root, and those that follow them; the likeliest first, so
    each behind its parent.

    `chances[k]`: chance that the first k tokens of the likeliest path are accepted, which may be longer than `path`.
    `skip`: tokens of the path that, if accepted, are committed before the pass begins.
    `in_flight`: whether a node is part of a request that waits for its response.
    """
    sent = next((depth for depth, node in enumerate(path) if not in_flight(node)), len(path))
    waiting: list[tuple[float, int, SideNode]] = []
    numbers = count()  # nodes of one chance keep their order

    def put(before: SideNode, node: TreeNode, chance: float, right: bool) -> None:
        if chance < BRANCH_FLOOR:
            return
        unsent = 0 if in_flight(node) else before.unsent + 1
        given = (node, chance) if sent + unsent <= skip else (before.behind, before.given)
        recent = recent_after(before.recent, right)
        place = SideNode(node, chance, sent + unsent if unsent else 0, *given, recent, unsent)
        heappush(waiting, (-chance, next(numbers), place))

    def put_others(place: SideNode, accepted: float) -> None:
        children = place.node.children or []
        for share, other in zip(acceptance_model.runners_up.chances(children), children[1:], strict=False):
            put(place, other, (place.chance - accepted) * share, False)

    recent, behind, given = acceptance_model.recent, root, 1.0
    for depth, node in enumerate([root, *path]):
        if depth <= skip:
            behind, given = node, chances[depth]
        place = SideNode(node, chances[depth], 0, behind, given, recent=recent, unsent=max(0, depth - sent))
        put_others(place, chances[depth + 1] if depth + 1 < len(chances) else 0.0)
        recent = recent_after(recent, True)
    while waiting:
        _, _, place = heappop(waiting)
        yield place
        if place.node.children:
            first = place.node.children[0]
            accepted = place.chance * acceptance_model.chance(first, place.recent)
            put(place, first, accepted, True)
            put_others(place, accepted)


_STEPS = 50  # chances are taken by fiftieths, so that few are computed


def tree_levels(first: float, others: Sequence[float], width: int, depth: int) -> Sequence[float]:
    """Item k: chance that the text is in the tree after k tokens, for k up to `depth`.

    `first`: chance of the first choice.
    `others`: of each choice after it, where the first is wrong.
    `width`: nodes of a level that are expanded, the likeliest.
    """
    return _levels(round(first * _STEPS), tuple(round(each * _STEPS) for each in others), width, depth)


@lru_cache(maxsize=1024)
def _levels(first: int, others: tuple[int, ...], width: int, depth: int) -> Sequence[float]:
    right = first / _STEPS
    chances = [right, *((1.0 - right) * each / _STEPS for each in others)]
    level, found = [1.0], [1.0]
    for _ in range(depth):
        below = [node * each for node in level for each in chances]
        found.append(sum(below))
        level = nlargest(width, below)
    return found
