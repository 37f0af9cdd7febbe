"""What was drafted ahead: a tree of possible continuations of the committed text.

The root stands for the committed text. Below a node lie the tokens that may follow it: first the drafter's own
choice, then its runner-up, which is what the target most often says instead. The line of first choices is the path
that guesses are made of; the rest are continuations prepared for corrections.
"""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from speculation.acceptance.draft_probs import Weights


class Prediction(NamedTuple):
    """What the drafter expects next: its choice and its own probability of it, and the token it would take instead.

    `probs`: what the choice was drawn from, where it was drawn and not chosen.
    """

    token: int
    confidence: float
    runner_up: int | None = None
    probs: Weights | None = None


class TreeNode:
    """A token behind all those above it. `children` is None until it is known what is expected next.

    `found`: it was looked up in the text, and the draft model was not asked. `probs`: what it was drawn from, if so.
    """

    __slots__ = ("children", "confidence", "found", "parent", "probs", "token")

    def __init__(
        self,
        token: int,
        confidence: float,
        parent: "TreeNode | None",
        found: bool = False,
        probs: Weights | None = None,
    ) -> None:
        self.token, self.confidence, self.parent, self.found, self.probs = token, confidence, parent, found, probs
        self.children: list[TreeNode] | None = None


class DraftTree:
    """Grows at its leaves as drafts come, and moves its root along as text is committed."""

    def __init__(self, ends: AbstractSet[int]) -> None:
        """`ends`: tokens that end a text, behind which nothing is drafted."""
        self._ends = ends
        self.root = TreeNode(-1, 1.0, None)

    def is_open(self, node: TreeNode) -> bool:
        """Whether `node` can be looked beyond and has not been yet."""
        return node.children is None and (node is self.root or node.token not in self._ends)

    def grow(self, node: TreeNode, prediction: Prediction) -> None:
        """Take in what is expected behind `node`. Of a node that was left behind, it does no harm.

        Behind a token that ends the text there is nothing to expect. What was looked up there meanwhile stays first.
        """
        if node is not self.root and node.token in self._ends:
            return
        if node.children:
            if all(child.token != prediction.token for child in node.children):
                node.children.append(TreeNode(prediction.token, prediction.confidence, node))
            return
        node.children = [TreeNode(prediction.token, prediction.confidence, node, probs=prediction.probs)]
        if prediction.runner_up is not None:
            node.children.append(TreeNode(prediction.runner_up, 1.0 - prediction.confidence, node))

    def main(self) -> list[TreeNode]:
        """The likeliest path from the root, root excluded."""
        path, node = [], self.root
        while node.children:
            node = node.children[0]
            path.append(node)
        return path

    def tail(self, node: TreeNode) -> list[int] | None:
        """Tokens from the root to `node`, root excluded; None when the text went on without it."""
        tokens = []
        while node is not self.root:
            tokens.append(node.token)
            if node.parent is None:
                return None
            node = node.parent
        return tokens[::-1]

    def advance(self, token: int) -> list[TreeNode]:
        """Move the root on to `token`; returns what had been expected there, which may be nothing."""
        expected = self.root.children or []
        self.root = next((node for node in expected if node.token == token), None) or TreeNode(token, 1.0, None)
        self.root.parent = None
        return expected
