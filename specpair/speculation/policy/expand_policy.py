"""Decide which nodes of the draft tree the next draft step expands, and which tokens are looked up instead."""

from collections.abc import Sequence

from specpair.speculation.drafts.node_selection import BRANCH_FLOOR, FLOOR, select_nodes
from specpair.speculation.drafts.tree import TreeNode
from specpair.speculation.policy.drafting_state import DraftingState

# Least chance of a node behind which drafting begins with reading for as long as a pass takes; for less, less.
_READ_CHANCE = 0.5


class ExpandPolicy:
    """What of the draft tree of one text to expand."""

    def __init__(self, state: DraftingState, width: int) -> None:
        """`width`: most tree nodes that one draft step can expand."""
        self._state, self._width = state, width
        self._text, self._length, self._latencies = state.text, state.length, state.latencies
        self._mechanisms, self._timeline, self._branches = state.mechanisms, state.timeline, state.branches

    def nodes_to_expand(self, now: float) -> list[TreeNode]:
        """The tree nodes that the next draft step expands, the likeliest first; empty: no draft step pays."""
        if self._timeline.waits(now) or not self._state.prospects.overlap:
            rests = self._mechanisms.same_cores and not self._length.best and not self._timeline.waits(now)
            plan = None if rests else self._state.plan(now)
            if plan is not None and plan.more:
                tip = self._text.tip(self._text.tree.main())
                return (
                    self._branches.with_tip(tip, self._ranked(self._state.deepest(now)))
                    if self._branches.pay
                    else [tip]
                )
        elif self._length.ahead_pays:
            ranked = [each for each in self._ranked(self._state.deepest(now)) if self._reads_likely(*each)]
            if ranked:
                return select_nodes(ranked, self._latencies.draft, self._width)
            return []
        return [self._text.tree.root] if self._state.shadow_is_due(now) else []

    def look_up(self, now: float) -> None:
        """Draft by lookup, which takes no time, where the draft model does not pay, is late, or is likelier wrong."""
        if not self._text.lookups or self._state.shadow_is_due(now):
            return
        busy = now >= self._state.step_late_at()
        step, prospects = self._state.step, self._state.prospects
        asked = step.nodes if step is not None and not (busy or prospects.outpaced) else ()
        # In a draft step's time a share of a pass is done, and a pass brings what stands behind the token, too. A fixed
        # number of draft tokens is drafted at any cost.
        worth = self._latencies.draft() / self._latencies.verify(0) if self._length.fixed is None else 0.0
        deepest, always = self._state.deepest(now, self._length.reach), busy or not self._length.best
        # The draft model comes first where the executor would have begun the next step by itself.
        guess = always or not (self._text.lookups.forces and prospects.overlap and self._length.ahead_pays)
        if self._text.look_up(deepest, asked, guess=guess, always=always, worth=worth):
            self._state.changed()  # it was made for the shorter path

    def continues_on_path(self, now: float) -> bool:
        """Whether the next draft step expands the next node of the path, whatever the current step predicts."""
        step = self._state.step
        if step is None or not self._state.prospects.overlap:
            return False
        if self._text.lookups.forces:  # what can follow the step's token in one way only needs no step
            return False
        main = self._text.tree.main()
        node = self._text.tip(main)
        if node is not step.nodes[0] or not self._text.tree.is_open(node):
            return False
        deepest = self._state.deepest(now)
        if self._timeline.waits(now):
            plan = self._state.plan(now)
            if plan is None or plan.more <= 1 or not self._branches.pay:
                return plan is not None and plan.more > 1
        elif not self._length.ahead_pays or len(main) + 1 >= deepest:
            return False
        ranked = self._ranked(deepest)
        chance = next((chance for chance, each in ranked if each is node), 0.0) * self._text.typical
        others = [other for other in ranked if other[1] not in step.nodes]
        if self._branches.pay:  # the step brings second choices, too
            others.append((chance / self._text.typical * (1.0 - self._text.typical) * self._text.runner_up, node))
            others.sort(key=lambda pair: pair[0], reverse=True)
        return chance >= FLOOR and len(select_nodes([(chance, node), *others], self._latencies.draft, self._width)) == 1

    def _reads_likely(self, chance: float, node: TreeNode) -> bool:
        """Whether to draft behind a node that the text passes through with `chance`, for all it reads before.

        Where the text goes another way, nothing else is drafted until it has been read.
        """
        return chance >= _READ_CHANCE * min(1.0, self._state.reading(node) / self._latencies.verify(0))

    def _ranked(self, deepest: int) -> Sequence[tuple[float, TreeNode]]:
        """Open nodes less than `deepest` tokens deep, each with the chance that the text passes through it."""
        beyond_fork = self._length.cap if self._mechanisms.after_recovered or self._branches.pay else 0
        return self._text.expandable_nodes(deepest, beyond_fork, BRANCH_FLOOR if self._branches.pay else FLOOR)
