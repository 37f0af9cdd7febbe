"""The text as far as it is known, the drafts behind it, and how far such drafts can be believed."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from speculation.drafts.acceptance_model import AcceptanceModel
from speculation.drafts.ngram import NgramIndex
from speculation.drafts.node_selection import FLOOR, expandable_nodes
from speculation.drafts.tree import DraftTree, TreeNode


class CommittedText:
    """Grows as tokens are committed, and compares them with what was expected."""

    def __init__(self, tokens: Sequence[int], ends: AbstractSet[int], lookup: NgramIndex | None = None) -> None:
        """`tokens`: prompt and what is committed. `ends`: tokens that end it. `lookup`: of a beginning of it."""
        self.known = list(tokens)
        self.tree = DraftTree(ends)
        self.mispredicted = self.next_draft_ready = (
            0  # tokens that were not expected; of them, those with drafts ready behind them
        )
        self.untested = 0  # tokens committed since one was compared with a draft of the model
        self.ready = 0.0  # fading share of misses behind which drafts were ready
        self._runner_up = 0.4  # fading share of misses in which the second choice was right
        self._acceptance_model = AcceptanceModel()
        self.lookup = lookup
        if lookup is not None:
            lookup.extend(self.known[len(lookup) :])

    def commit(self, tokens: Sequence[int]) -> None:
        """Take in tokens that follow those known."""
        if self.lookup is not None:
            self.lookup.extend(tokens)
        missed = [token for token in tokens if self._advance(token)]
        if missed:
            ready = bool(self.tree.root.children)
            self.mispredicted += 1
            self.next_draft_ready += ready
            self.ready += 0.1 * (ready - self.ready)

    def learn(self) -> None:
        """Believe drafts as far as those did that were compared. It takes longer than all the rest."""
        self._acceptance_model.fit()

    def tip(self, main: Sequence[TreeNode]) -> TreeNode:
        """Where the likeliest path, `tree.main()`, goes on."""
        return main[-1] if main else self.tree.root

    def chances(self, path: Sequence[TreeNode] = (), ahead: int = 0) -> list[float]:
        """`[k]`: that the first k drafts of a path from the root stand, and of so many more behind them."""
        return [1.0, *self._acceptance_model.path(path, ahead)]

    @property
    def typical(self) -> float:
        """Chance that a draft of the model stands of which nothing is known."""
        return self._acceptance_model.model.typical

    def places(self, deepest: int, beyond_fork: int) -> list[tuple[float, TreeNode]]:
        """Where to look further, with the chance that the text goes through there, as `expandable_nodes` says."""
        return expandable_nodes(self.tree, self._acceptance_model, self._runner_up, deepest, beyond_fork)

    def look_up(self, deepest: int, asked: Sequence[TreeNode], *, always: bool) -> bool:
        """Lengthen the likeliest path with tokens found in the text, up to `deepest` tokens. Return whether it grew.

        `asked`: nodes behind which the draft model is drafting; the path is not lengthened there. `always`: also add
        tokens that are less likely to be accepted than the draft model's next token. A second call in the same state
        adds nothing.
        """
        if self.lookup is None:
            return False
        path = self.tree.main()
        tip, grew = self.tip(path), False
        least = 0.0 if always else self._acceptance_model.at_best(self._acceptance_model.recent)
        while len(path) < deepest and self.tree.is_open(tip) and tip not in asked:
            found = self.lookup.predict([node.token for node in path])
            if found is None:
                break
            node = TreeNode(found.token, found.confidence, tip, found=True)
            # The whole path's chance, as `chances` has it: another formula would let a second call go on from here.
            chance = self.chances([*path, node])[-1]
            if chance < FLOOR or self._acceptance_model.chance(node, self._acceptance_model.recent) < least:
                break
            tip.children, tip, grew = [node], node, True
            path.append(node)
        return grew

    def _advance(self, token: int) -> bool:
        """Take in one token; whether it was expected to be another."""
        expected = self.tree.advance(token)
        self.known.append(token)
        if not expected:
            self.untested += 1
            return False
        self.untested = self.untested + 1 if expected[0].found else 0
        stood = expected[0].token == token
        self._acceptance_model.learn(expected[0], stood)
        if not stood and len(expected) > 1:
            self._runner_up += 0.05 * ((expected[1].token == token) - self._runner_up)
        return not stood
