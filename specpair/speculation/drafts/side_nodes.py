"""The nodes of the draft tree beside its likeliest path, as candidates for the next request.

A request holds what may follow all that is known. Of its tree the verifier judges what is left when the pass begins:
what follows the text as the passes before have made it. So a node counts by its level: by how many tokens it follows
the last one in flight, if the text takes that way, as the likeliest path is counted.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from specpair.speculation.drafts.acceptance_model import AcceptanceModel, recent_after
from specpair.speculation.drafts.node_selection import BRANCH_FLOOR
from specpair.speculation.drafts.tree import TreeNode


class SideNode(NamedTuple):
    """A node, with the `chance` that the text passes through it.

    `level`: of the token of the likeliest path that a pass would judge together with it; 0: it is in flight.
    `behind`: the node that the text has reached when the pass begins that may judge this one.
    `given`: the chance of that.
    """

    node: TreeNode
    chance: float
    level: int
    behind: TreeNode
    given: float


class _Place(NamedTuple):
    """Where a walk through the tree is: behind `sent` tokens in flight and `unsent` further ones."""

    node: TreeNode
    chance: float
    recent: float
    unsent: int
    behind: TreeNode
    given: float


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
    waiting: list[tuple[float, int, _Place]] = []
    numbers = count()  # nodes of one chance keep their order

    def put(before: _Place, node: TreeNode, chance: float, right: bool) -> None:
        if chance < BRANCH_FLOOR:
            return
        unsent = 0 if in_flight(node) else before.unsent + 1
        place = _Place(node, chance, recent_after(before.recent, right), unsent, before.behind, before.given)
        if sent + unsent <= skip:
            place = place._replace(behind=node, given=chance)
        heappush(waiting, (-chance, next(numbers), place))

    def put_others(place: _Place, accepted: float) -> None:
        children = place.node.children or []
        for share, other in zip(acceptance_model.runners_up.chances(children), children[1:], strict=False):
            put(place, other, (place.chance - accepted) * share, False)

    recent, behind, given = acceptance_model.recent, root, 1.0
    for depth, node in enumerate([root, *path]):
        if depth <= skip:
            behind, given = node, chances[depth]
        place = _Place(node, chances[depth], recent, max(0, depth - sent), behind, given)
        put_others(place, chances[depth + 1] if depth + 1 < len(chances) else 0.0)
        recent = recent_after(recent, True)
    while waiting:
        _, _, place = heappop(waiting)
        level = sent + place.unsent if place.unsent else 0
        yield SideNode(place.node, place.chance, level, place.behind, place.given)
        if place.node.children:
            first = place.node.children[0]
            accepted = place.chance * acceptance_model.chance(first, place.recent)
            put(place, first, accepted, True)
            put_others(place, accepted)
