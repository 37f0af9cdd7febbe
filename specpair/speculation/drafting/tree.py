"""The draft tree: possible continuations of the committed text.

The root represents the committed text. The children of a node are the tokens that may follow it: first the drafter's
choice, then its runner-up, which is what the target most often chooses instead, and perhaps further ones. The path of
first choices becomes the draft; the other branches are prepared for recovered tokens, or are part of the draft, too.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import NamedTuple
from weakref import ref

from specpair.speculation.acceptance.draft_probs import Weights
from specpair.speculation.draft import DraftSource, DraftToken


class Proposal(NamedTuple):
    """The drafter's next token, its probability of that token (`confidence`, 0 to 1), and the runner-up.

    `probs`: the distribution that the token was drawn from, where it was drawn; None where it was chosen.
    `further`: the choices after the runner-up, the best first.
    `parts`: of each choice after the first, its part of the probability that the first leaves, 0 to 1; empty: unknown.
    `behind`: what the same source proposes behind the token; None: it was not asked, or has nothing.
    """

    token: int
    confidence: float
    runner_up: int | None = None
    probs: Weights | None = None
    further: tuple[int, ...] = ()
    parts: tuple[float, ...] = ()
    behind: "Proposal | None" = None

    @classmethod
    def of(cls, tokens: Sequence[int], probabilities: Sequence[float]) -> "Proposal":
        """These choices, the first choice first, with the drafter's probability of each."""
        confidence, *others = probabilities
        left = max(1.0 - confidence, sum(others))
        parts = tuple(each / left if left > 0.0 else 0.0 for each in others)
        runner_up = tokens[1] if len(tokens) > 1 else None
        return cls(tokens[0], confidence, runner_up, further=tuple(tokens[2:]), parts=parts)

    @property
    def length(self) -> int:
        """How many tokens follow one another in it."""
        return 1 + (0 if self.behind is None else self.behind.length)

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of its tokens, the first choice first."""
        return self.token, *(() if self.runner_up is None else (self.runner_up,)), *self.further


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class TreeNode:
    """A draft token behind those on its path from the root."""

    token: int
    confidence: float  # the drafter's probability of the token, 0 to 1; for a runner-up, an upper bound of it
    # None, or no longer there: the committed text has passed it. A node that is kept keeps those behind it, not those
    # before it: cycles would be left to the garbage collector, thousands for each text.
    parent: "ref[TreeNode] | None"
    source: DraftSource = DraftSource.MODEL
    # The other source, lookup or draft model: its confidence if it has the same token, minus its confidence if it has
    # another one; 0 if it has none, or was not asked.
    second_opinion: float = 0.0
    probs: Weights | None = None  # the distribution that the token was drawn from, where it was drawn
    # Of a choice after the first: its part of the probability that the first leaves, 0 to 1; None: unknown.
    part: float | None = None
    request: object = field(init=False, default=None)  # the latest request that it is part of
    children: "list[TreeNode] | None" = field(init=False, default=None)  # None until the node is expanded

    def forced(self) -> int:
        """The number of consecutive forced tokens up to this node."""
        count, node = 0, self
        while node.source is DraftSource.GRAMMAR and node.parent is not None and (parent := node.parent()) is not None:
            count, node = count + 1, parent
        return count


def draft_of(nodes: Sequence[TreeNode], drawn: bool) -> tuple[DraftToken, ...]:
    """Nodes as the tokens of a draft, each behind its parent unless the parent is the root.

    `drawn`: whether they are sent with the distributions that they were drawn from.
    """
    places = {id(node): at for at, node in enumerate(nodes)}
    tokens = []
    for at, node in enumerate(nodes):
        parent = None if node.parent is None else node.parent()
        probs = (node.probs or {node.token: 1.0}) if drawn else None
        back = at - places.get(id(parent), -1)
        tokens.append(DraftToken(node.token, node.confidence, node.source, probs, back))
    return tuple(tokens)


class DraftTree:
    """A tree that grows at its leaves as tokens are drafted, and whose root advances as tokens are committed."""

    def __init__(self, ends: AbstractSet[int]) -> None:
        """`ends`: ids of the end tokens, behind which nothing is drafted."""
        self._ends = ends
        self.root = TreeNode(-1, 1.0, None)

    def is_open(self, node: TreeNode) -> bool:
        """Whether `node` can be expanded and has not been expanded yet."""
        return node.children is None and (node is self.root or node.token not in self._ends)

    def grow(self, node: TreeNode, proposal: Proposal, source: DraftSource = DraftSource.MODEL) -> None:
        """Add `proposal`, which `source` made, behind `node`. For a node that the root has passed this has no effect.

        Nothing is added behind an end token. A token that was looked up there meanwhile stays the first choice.
        """
        if node is not self.root and node.token in self._ends:
            return
        if node.children:
            if all(child.token != proposal.token for child in node.children):
                node.children.append(
                    TreeNode(proposal.token, proposal.confidence, ref(node), source, part=proposal.confidence)
                )
            return
        node.children = [TreeNode(proposal.token, proposal.confidence, ref(node), source, probs=proposal.probs)]
        left, parts = 1.0 - proposal.confidence, chain(proposal.parts, repeat(None))
        node.children += [
            TreeNode(other, left if part is None else left * part, ref(node), source, part=part)
            for other, part in zip(proposal.tokens[1:], parts, strict=False)
        ]

    def main(self) -> list[TreeNode]:
        """The likeliest path, which takes the first child of each node; without the root."""
        path, node = [], self.root
        while node.children:
            node = node.children[0]
            path.append(node)
        return path

    def tail(self, node: TreeNode) -> list[int] | None:
        """Token ids from the root to `node`, without the root; None where the committed text took another branch."""
        tokens = []
        while node is not self.root:
            tokens.append(node.token)
            parent = None if node.parent is None else node.parent()
            if parent is None:
                return None
            node = parent
        return tokens[::-1]

    def advance(self, token: int) -> list[TreeNode]:
        """Advance the root by one committed token; return the nodes drafted at its position, which may be none."""
        expected = self.root.children or []
        self.root = next((node for node in expected if node.token == token), None) or TreeNode(token, 1.0, None)
        self.root.parent = None
        return expected
