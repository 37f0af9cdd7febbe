"""Static trees: drafts whose shape is the same at every position of the text, chosen with hindsight.

A tree is known by the ranks of its tokens: which choice of the drafter each is behind the one before it, 0 the first.
The likeliest tree of some size, where each rank is right with a chance of its own whatever stands before, is the one of
Sequoia (arXiv 2402.12374). Its chances are taken here from the very texts that are replayed.

A level of a tree is made in one draft step over as many rows as tokens of the level before have others behind them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import heappop, heappush
from math import inf

from lab.simulator.known_outputs.static_policies import MeasuredLatencies, Policy, Trace, policies, replay

SIZES = (1, 2, 4, 8, 16, 32, 64)  # tokens of the trees that are tried
DEPTHS = (1, 2, 3, 4, 6, 8, 16)  # and how deep they may be
MOST_IN_FLIGHT = 2

Tree = tuple[tuple[int, ...], ...]  # of each token the ranks that lead to it, a parent before its children


def shares(texts: Iterable[Sequence[int]], most: int) -> list[float]:
    """How often each of the first `most` ranks is that of the target's token, in texts by their ranks."""
    found = Counter(rank for text in texts for rank in text)
    return [found[rank] / found.total() for rank in range(most)]


def likeliest(chances: Sequence[float], size: int, depth: int) -> Tree:
    """The `size` likeliest tokens, at most `depth` deep, where rank r is right with the chance `chances[r]`."""
    tree: list[tuple[int, ...]] = []
    waiting: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]
    while waiting and len(tree) <= size:
        chance, path = heappop(waiting)
        tree.append(path)
        if len(path) < depth:
            for rank, each in enumerate(chances):
                if each:
                    heappush(waiting, (chance * each, (*path, rank)))
    return tuple(tree[1:])


def trees(chances: Sequence[float]) -> set[Tree]:
    """The trees that are tried on texts whose ranks have these chances."""
    return {likeliest(chances, size, depth) for size in SIZES for depth in DEPTHS if depth <= size} - {()}


class TreeDrafts:
    """Drafts of one shape, behind each part of a text (`static_policies.Drafts`, without the time of their steps)."""

    def __init__(self, tree: Tree, ranks: Sequence[int]) -> None:
        """`ranks`: of each token of the text the drafter's rank; one that it does not know is in no tree."""
        self._tree, self._ranks = tree, ranks
        self._known: dict[tuple[int, int], list[int]] = {}

    @cached_property
    def depth(self) -> int:
        return max(map(len, self._tree))

    @cached_property
    def rows(self) -> list[int]:
        """Of each level, how many tokens of the level before have others behind them."""
        return [len({path[:-1] for path in self._tree if len(path) == level + 1}) for level in range(self.depth)]

    @cached_property
    def _behind(self) -> dict[tuple[int, ...], list[int]]:
        """Of each token, and of the place before the tree, how many follow it that are at most 0, 1, 2 … deep."""
        found = {path: [0] * (self.depth + 1) for path in ((), *self._tree)}
        for path in self._tree:
            for above in range(len(path)):
                for cut in range(len(path), self.depth + 1):
                    found[path[:above]][cut] += 1
        return found

    def left(self, start: int, depth: int) -> list[int]:
        if (start, depth) not in self._known:
            self._known[start, depth] = list(self._left(start, depth))
        return self._known[start, depth]

    def _left(self, start: int, depth: int) -> Iterator[int]:
        for taken in range(depth + 1):
            behind = self._behind.get(tuple(self._ranks[start : start + taken]))
            if behind is None:
                return
            yield behind[depth]


class _TimedDrafts:
    """Drafts of a tree on a machine."""

    def __init__(self, drafts: TreeDrafts, step: Callable[[int], float]) -> None:
        """`step`: seconds of a draft step, by its rows."""
        self.left, self._steps = drafts.left, [step(rows) for rows in drafts.rows]

    def step(self, level: int) -> float:
        return self._steps[min(level, len(self._steps) - 1)]


def tree_policies(depth: int) -> Iterator[Policy]:
    """The policies that are tried with trees `depth` deep: those with at most `MOST_IN_FLIGHT` drafts in flight."""
    return (each for each in policies(depth) if not MOST_IN_FLIGHT < each.in_flight < inf)


def tree_seconds(
    trace: Trace, drafts: Iterable[TreeDrafts], times: MeasuredLatencies, step: Callable[[int], float]
) -> Iterator[tuple[str, float]]:
    """How long the text takes with each tree and each policy, by a name of the two. `step`: as for `_TimedDrafts`."""
    for number, each in enumerate(drafts):
        timed = _TimedDrafts(each, step)
        for policy in tree_policies(each.depth):
            yield f"{policy.name}, tree {number}", replay(trace, times, policy, timed)[-1][0]
