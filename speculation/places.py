"""Where in a tree of drafts to look further, and how likely the text is to go through there."""

from speculation.calibration import Calibration
from speculation.tree import Node, Tree

FLOOR = 0.02  # chance below which nothing is looked behind


def open_places(
    tree: Tree, calibration: Calibration, runner_up: float, deepest: int, beyond_fork: int
) -> list[tuple[float, Node]]:
    """Nodes less than `deepest` tokens behind the root that can be looked behind, with their chances, the best first.

    `runner_up`: share of misses in which the second choice is right. `beyond_fork`: places that are looked for on a
    line which leaves the path, from the fork on; 0: none leaves it.
    """
    found: list[tuple[float, Node]] = []
    # Node, its chance, how the drafts before it went, its depth, and how many places its line still has.
    waiting = [(tree.root, 1.0, calibration.recent, 0, deepest)] if deepest > 0 else []
    while waiting:
        node, chance, recent, depth, left = waiting.pop()
        if tree.is_open(node):
            found.append((chance, node))
        if not node.children or depth + 1 >= deepest:
            continue
        stands = chance * calibration.chance(node.children[0].confidence, recent)
        if stands >= FLOOR and left > 1:
            waiting.append((node.children[0], stands, calibration.then(recent, True), depth + 1, left - 1))
        falls = (chance - stands) * runner_up
        if len(node.children) > 1 and falls >= FLOOR and beyond_fork:
            waiting.append((node.children[1], falls, calibration.then(recent, False), depth + 1, beyond_fork))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return found
