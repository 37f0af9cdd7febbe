"""The committed text with the draft tree behind it and the acceptance model learnt from it."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafting.acceptance_model import AcceptanceModel, recent_after
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.node_selection import FLOOR, expandable_nodes
from specpair.speculation.drafting.tree import DraftTree, Proposal, TreeNode

_LIKELY = 0.5  # chance down to which a looked-up branch beside the likeliest path is lengthened


class CommittedText:
    """The committed text. Each committed token is compared with the draft tree, which teaches the acceptance model."""

    def __init__(
        self,
        tokens: list[int],
        ends: AbstractSet[int],
        lookups: Lookups | None = None,
        acceptance: AcceptanceModel | None = None,
    ) -> None:
        """`tokens`: ids of the committed text, prompt included: the caller's list, to which committed tokens are
            appended.
        `lookups`: they may have taken in a beginning of the text; None: nothing is looked up.
        `acceptance`: what earlier texts have taught, which is changed; None: nothing.
        """
        self.known = tokens
        self.tree = DraftTree(ends)
        self.mispredicted = 0  # how often the target chose another token than the one that was drafted
        self.next_draft_ready = 0  # how often, of these, a draft behind the target's token was ready
        self.untested = 0  # tokens committed since the last comparison with a token of the draft model
        self.ready_share = 0.0  # fading share of rejections after which a draft was ready, 0 to 1
        self.acceptance = AcceptanceModel() if acceptance is None else acceptance
        self.lookups = Lookups() if lookups is None else lookups
        self.lookups.follow(self.known)
        # A cache of `expandable_nodes` by its arguments, until tree or acceptance model change.
        self._expandable: dict[tuple[int, int, float], Sequence[tuple[float, TreeNode]]] = {}

    def commit(self, tokens: Sequence[int]) -> None:
        """Append committed tokens, and learn which of them had been drafted."""
        self._expandable.clear()
        mispredicted = [token for token in tokens if self._advance(token)]
        self.lookups.follow(self.known)
        if mispredicted:
            ready = bool(self.tree.root.children)
            self.mispredicted += 1
            self.next_draft_ready += ready
            self.ready_share += 0.1 * (ready - self.ready_share)

    def grow(self, node: TreeNode, proposal: Proposal, source: DraftSource = DraftSource.MODEL) -> None:
        """Add a drafter's proposal behind `node`, as `DraftTree.grow` does, and compare it with the lookup's.

        If the lookup has another token, the likelier one becomes the first choice, and the other one the runner-up.
        """
        self._expandable.clear()
        looked_up, tail = node.children, self.tree.tail(node)
        # To choose by its value whether to keep a drawn token would be a bias.
        if tail is not None and not proposal.probs and not self.lookups.allows(proposal.token, tail):
            proposal = proposal._replace(confidence=0.0)
        self.tree.grow(node, proposal, source)
        if not node.children or proposal.probs:
            return
        first = node.children[0]
        if looked_up:  # meanwhile; it may have been sent
            first.second_opinion = proposal.confidence if first.token == proposal.token else -proposal.confidence
            return
        other = None if tail is None else self._found(node, tail)
        if other is None:
            return
        if other.token == first.token:
            first.second_opinion = other.confidence
            return
        first.second_opinion, other.second_opinion = -other.confidence, -first.confidence
        model, recent = self.acceptance, self.acceptance.recent
        if model.chance(other, recent) > model.chance(first, recent):
            first.part = first.confidence
            node.children = [other, first]
        else:
            other.part = other.confidence
            node.children = [first, other, *(each for each in node.children[1:] if each.token != other.token)]

    def learn(self) -> None:
        """Refit the acceptance model to the compared draft tokens. This takes longer than all other methods."""
        self._expandable.clear()
        self.acceptance.fit()

    def tip(self, main: Sequence[TreeNode]) -> TreeNode:
        """The last node of `main`, the likeliest path (`tree.main()`), or the root, the committed text, if none."""
        return main[-1] if main else self.tree.root

    def chances(
        self, path: Sequence[TreeNode] = (), ahead: int = 0, source: DraftSource = DraftSource.MODEL
    ) -> list[float]:
        """Item k: chance that the first k draft tokens of a path from the root, plus `ahead` more of `source`, are
        accepted."""
        return [1.0, *self.acceptance.path(path, ahead, source)]

    @property
    def typical(self) -> float:
        """Chance that the draft model's next token is accepted, where its confidence is not known yet."""
        return self.acceptance.typical(DraftSource.MODEL)

    def expandable_nodes(
        self, deepest: int, beyond_fork: int, floor: float = FLOOR
    ) -> Sequence[tuple[float, TreeNode]]:
        """Open nodes with their chances, as `node_selection.expandable_nodes` returns them."""
        limits = deepest, beyond_fork, floor
        if limits not in self._expandable:
            self._expandable[limits] = expandable_nodes(self.tree, self.acceptance, *limits)
        return self._expandable[limits]

    def look_up(
        self, deepest: int, asked: Sequence[TreeNode], *, guess: bool = True, always: bool, worth: float = 0.0
    ) -> bool:
        """Lengthen the likeliest path by looked-up draft tokens, to `deepest` tokens. Return whether it grew.

        `asked`: nodes behind which the draft model is drafting; the path is not lengthened there.
        `guess`: also add tokens that are not certain.
        `always`: also add tokens that are less likely to be accepted than the draft model's next token. Otherwise they
            may be less likely by `worth` (0 to 1), which the time of a draft step is worth. A second call in the same
            state adds nothing.
        """
        if not self.lookups:
            return False
        path = self.tree.main()
        tip, grew = self.tip(path), False
        least = 0.0 if always else self.acceptance.optimistic_chance(self.acceptance.recent) - worth
        while len(path) < deepest and self.tree.is_open(tip) and tip not in asked:
            node = self._found(tip, [node.token for node in path])
            if node is None or not (guess or node.source is DraftSource.GRAMMAR):
                break
            # The whole path's chance, as `chances` has it: another formula would let a second call go on from here.
            chance = self.chances([*path, node])[-1]
            if chance < FLOOR or self.acceptance.chance(node, self.acceptance.recent) < least:
                break
            self._expandable.clear()
            tip.children, tip, grew = [node], node, True
            path.append(node)
        return grew

    def look_up_beside(self, deepest: int) -> bool:
        """Lengthen the branches that leave the likeliest path with a looked-up token, to `deepest` tokens. Return
        whether one grew."""
        grew, before = False, list[int]()
        for node in [self.tree.root, *self.tree.main()]:
            before += [] if node is self.tree.root else [node.token]
            for other in (node.children or [])[1:]:
                grew = (other.source.looked_up and self._lengthen(other, before, deepest)) or grew
        return grew

    def _lengthen(self, fork: TreeNode, before: list[int], deepest: int) -> bool:
        """Lengthen the likeliest path behind `fork`, which follows the tokens `before`, by what is likely there."""
        tip, tail, grew = fork, [*before, fork.token], False
        chance, recent = 1.0, recent_after(self.acceptance.recent, False)
        while len(tail) < deepest and chance >= _LIKELY:
            node = self._found(tip, tail) if self.tree.is_open(tip) else next(iter(tip.children or []), None)
            if node is None:
                break
            chance *= self.acceptance.chance(node, recent)
            if tip.children is None and chance >= _LIKELY:
                self._expandable.clear()
                tip.children, grew = [node], True
            tip, tail, recent = node, [*tail, node.token], recent_after(recent, True)
        return grew

    def _found(self, node: TreeNode, tail: Sequence[int]) -> TreeNode | None:
        """The likeliest token that is looked up behind `node`, whose path is `tail`; None: nothing is found."""
        found = self.lookups.found(node, tail)
        if len(found) < 2:
            return found[0] if found else None
        recent = self.acceptance.recent
        best = max(found, key=lambda each: self.acceptance.chance(each, recent)).token
        first, *others = (each for each in found if each.token == best)
        first.confidence = max([first.confidence, *(each.confidence for each in others)])
        return first

    def _advance(self, token: int) -> bool:
        """Append one committed token; return whether another token had been drafted at its position."""
        expected = self.tree.advance(token)
        self.known.append(token)
        if not expected:
            self.untested += 1
            return False
        self.untested = 0 if expected[0].source.predicted else self.untested + 1
        accepted = expected[0].token == token
        self.acceptance.learn(expected[0], accepted)
        if not accepted and len(expected) > 1:
            self.acceptance.runners_up.learn(expected, token)
        return not accepted
