"""Decides what the next verify request carries, when it leaves, and what the next draft step expands or looks up.

Whether a draft pays is an estimate, and the estimates of many draft tokens of little value are wrong by more than they
are worth: of those that seem to pay, too many are those that were taken for better than they are. Nothing in a single
round shows it. So the passes themselves are added up: each token is worth what the target alone takes for it, and a
pass with draft tokens costs its time, with that of the target's wait for the draft. So does the pass behind it, which
may read accepted tokens again. The debt is small at most, so a text is hardly ever slower than the target alone.
"""

from collections.abc import Sequence

from specpair.speculation.drafting.node_selection import BRANCH_FLOOR, FLOOR, select_nodes
from specpair.speculation.drafting.tree import TreeNode
from specpair.speculation.policy.drafting_state import TICK, DraftingState
from specpair.speculation.policy.timing import LatencyModel, Mean

_WORTH = 0.01  # expected tokens that a request must gain by leaving before the response to the last one
# Seconds, and tokens, since the last request: after either, an empty one is due, as acknowledgement.
REPORT, _REPORT_TOKENS = 0.5, 16
_SURE = 0.5  # chance of acceptance from which a draft token is sent whatever the balance is
# All in passes of the target alone: the debt from which drafts must be sure, the greatest balance and debt, and what is
# forgiven with each token that comes without a draft.
_ALLOWED, _MOST, _FORGIVEN = 0.25, 4.0, 0.005


class DraftBalance:
    """The balance of one text, as the module describes."""

    def __init__(self, latencies: LatencyModel) -> None:
        self._latencies = latencies
        self._plain = Mean(0.95)  # seconds of passes without draft tokens, unless one with draft tokens came before
        self._drafted = False  # whether the last pass had draft tokens
        self.passes = 0.0  # the balance, in passes of the target alone

    @property
    def in_debt(self) -> bool:
        """Whether to send only draft tokens that are likelier accepted than rejected."""
        return self.passes < -_ALLOWED

    def judged(self, tokens: int, seconds: float) -> None:
        """Take in a pass with draft tokens. `seconds`: of the pass, and of the target's wait for the draft."""
        self._add(tokens - seconds / self._step)
        self._drafted = True

    def plain(self, seconds: float) -> None:
        """Take in a pass of `seconds` without draft tokens."""
        if self._drafted:
            self._add(1.0 - seconds / self._step)
        else:
            self._plain.learn(seconds)
            self._add(_FORGIVEN)
        self._drafted = False

    @property
    def _step(self) -> float:
        return self._plain.value or self._latencies.alone

    def _add(self, passes: float) -> None:
        self.passes = min(max(self.passes + passes, -_MOST), _MOST)


class SendPolicy:
    """Selects the draft of one text to send, if any."""

    def __init__(self, state: DraftingState, *, always_send: bool = False) -> None:
        """`always_send`: as for `SpeculationController`."""
        self.balance = DraftBalance(state.latencies)
        self._state, self._always_send = state, always_send
        self._text, self._length, self._latencies = state.text, state.length, state.latencies
        self._mechanisms, self._timeline, self._branches = state.mechanisms, state.timeline, state.branches
        self.sent(0.0)

    def sent(self, now: float) -> None:
        """Take in that a request leaves."""
        self.sent_at, self._reported = now, len(self._text.known)

    @property
    def must_be_sure(self) -> bool:
        """Whether drafts have brought too little. Without self-continuation, the target alone is no alternative."""
        return self._mechanisms.self_continue and self.balance.in_debt and self._length.fixed is None

    def report_is_due(self, now: float) -> bool:
        """Whether an empty verify request is due, to acknowledge target-decoded tokens or resume self-continuation."""
        if self._timeline.drafts_in_flight or not self._mechanisms.self_continue:
            return False
        if not self._timeline.self_continue:
            return now >= self._state.step_late_at() - TICK
        return now - self.sent_at >= REPORT - TICK or len(self._text.known) - self._reported >= _REPORT_TOKENS

    def nodes_to_send(self, now: float) -> list[TreeNode] | None:
        """The draft of a request that should leave now, each node behind its parent; None: no request should."""
        if now < self._state.send_from(now) - TICK:
            return None
        plan = self._state.plan(now)
        if plan is None or plan.more or (self._timeline.waits(now) and self._state.shadow_is_due(now)):
            return None
        path = self._text.tree.main()[: max(0, self._state.room)]
        chances = self._text.chances(path)
        count = self._length.to_send(path, chances, plan.skip, always_send=self._always_send)
        if self.must_be_sure and count > plan.skip and chances[plan.skip + 1] < _SURE * chances[plan.skip]:
            count = plan.skip
        if self._length.fixed is None and self._timeline.drafts_in_flight:
            likely = chances[min(plan.skip, len(path))]
            if likely * self._latencies.link * self._state.prospects.rate < _WORTH:
                return None  # waiting for the response loses hardly anything, and shows whether the draft is of use
        if count <= plan.skip and not self._timeline.waits(now):
            return None
        end = len(self._text.known) + count
        if any(sent.end >= end for sent in self._timeline.drafts_in_flight if not sent.stale):
            return None  # an earlier request carries these tokens already
        if count <= plan.skip:
            return path[:count]
        path = path[:count]
        beside = [] if self.must_be_sure else self._branches.worthwhile(path, chances, plan.skip)
        return path + [each.node for each in beside[: max(0, self._state.room - count)]]


# Least chance of a node behind which drafting begins with reading for as long as a pass takes; for less, less.
_READ_CHANCE = 0.5


class ExpandPolicy:
    """Selects the nodes of one text's draft tree to expand."""

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
                if not self._branches.pay:
                    return [tip]
                return self._branches.with_tip(tip, self._ranked(self._state.deepest(now)))
        elif self._length.ahead_pays:
            ranked = [each for each in self._ranked(self._state.deepest(now)) if self._reads_likely(*each)]
            return select_nodes(ranked, self._latencies.draft, self._width) if ranked else []
        return [self._text.tree.root] if self._state.shadow_is_due(now) else []

    def look_up(self, now: float) -> None:
        """Draft by lookup, which takes no time, if the draft model does not pay, is late, or is likelier wrong."""
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
        if self._branches.pay and self._text.look_up_beside(deepest):
            self._state.changed()

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
            typical, runner_up = self._text.typical, self._text.acceptance.runners_up.shares[0]
            others.append((chance / typical * (1.0 - typical) * runner_up, node))
            others.sort(key=lambda pair: pair[0], reverse=True)
        return chance >= FLOOR and len(select_nodes([(chance, node), *others], self._latencies.draft, self._width)) == 1

    def _reads_likely(self, chance: float, node: TreeNode) -> bool:
        """Whether to draft behind a node that the text passes through with `chance`, despite the tokens to read first.

        Where the text goes another way, nothing else is drafted until it has been read.
        """
        return chance >= _READ_CHANCE * min(1.0, self._state.reading(node) / self._latencies.verify(0))

    def _ranked(self, deepest: int) -> Sequence[tuple[float, TreeNode]]:
        """Open nodes less than `deepest` tokens deep, each with the chance that the text passes through it."""
        beyond_fork = self._length.cap(()) if self._mechanisms.after_recovered or self._branches.pay else 0
        return self._text.expandable_nodes(deepest, beyond_fork, BRANCH_FLOOR if self._branches.pay else FLOOR)
