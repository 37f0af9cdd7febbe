"""Trees by their cost law. It is a law: the code that drafts and judges trees does not run here.

A tree has `width` nodes on each level: of all paths of first and second choices, the `width` likeliest that end there.
So a level takes the target `width` tokens of a pass and the draft model `width` branches of a step, and the text stays
in the tree as long as the choices that the target makes are one of these paths. The scheduler and the controller see a
draft with one token for each level; that is accepted as far as the text stays in the tree.

What the law leaves out: an engine that masks attention for trees may take longer than for as many tokens of a chain;
nodes beyond the second choice; and the scheduler's limits count levels, not nodes (draft credit, tokens of a pass).
"""

from collections.abc import Sequence
from typing import Protocol

from specpair.drafters.base import Expansion
from specpair.speculation.drafts.tree import Proposal

_Level = dict[tuple[bool, ...], float]  # for each path that the tree has, by whether each is a first choice: its chance


class Choices(Protocol):
    """A text, with what a draft model proposes for it: its token `at`, as draft token `position`."""

    def tokens(self, start: int, end: int) -> list[int]: ...

    def proposal(self, at: int, position: int, runner_up: bool) -> Proposal: ...


def deeper(level: _Level, first: float, second: float, width: int) -> _Level:
    """The level below `level`.

    `first`, `second`: the chances of the first choice, and of the second where the first is wrong.
    """
    longer = {(*path, True): chance * first for path, chance in level.items()}
    longer |= {(*path, False): chance * (1.0 - first) * second for path, chance in level.items()}
    return dict(sorted(longer.items(), key=lambda each: each[1], reverse=True)[:width])


def expected_length(depth: int, width: int, first: float, second: float) -> float:
    """Tokens that a tree brings to a text on average, without the target's own one."""
    level: _Level = {(): 1.0}
    total = 0.0
    for _ in range(depth):
        level = deeper(level, first, second, width)
        total += sum(level.values())
    return total


class TreeDrafter:
    """A drafter whose token for a position is right where one of the tree's nodes for it is. Its confidence is the
    chance of that, where the text has stayed in the tree so far."""

    width = 1

    def __init__(self, text: Choices, nodes: int, second: float) -> None:
        """`nodes`: on each level.
        `second`: the chance of a second choice where the first is wrong.
        """
        self._text, self._nodes, self._second = text, nodes, second

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return Expansion([self._behind(len(text), tail, runners_up > 0) for tail in tails], len(tails))

    def _behind(self, length: int, tail: Sequence[int], runner_up: bool) -> Proposal:
        level: _Level = {(): 1.0}
        path: tuple[bool, ...] = ()
        before, at = 1.0, length + len(tail)
        truths = self._text.tokens(length, at + 1)
        inside = list(tail) == truths[:-1]
        for position, truth in enumerate(truths):
            proposed = self._text.proposal(length + position, position, True)
            before = sum(level.values())
            level = deeper(level, proposed.confidence, self._second, self._nodes)
            path = (*path, proposed.token == truth)
            inside = inside and path in level and truth in (proposed.token, proposed.runner_up)
        wrong = (truths[-1] + 1) % 256
        token = truths[-1] if inside else wrong
        return Proposal(token, sum(level.values()) / before, (wrong + 1) % 256 if runner_up else None)
