"""Decide what to draft and when to send it. The controller has no engine, no network and no clock.

The controller knows the committed text, the draft tree behind it, and the verify requests in flight. The caller reports
events (a draft step ended, a response came, the verifier decoded a token by itself) and asks what to do next. Times are
seconds on the caller's clock. Positions count tokens from the first token of the prompt.

One more draft token pays if its chance of acceptance is worth more than the time it costs (`draft_length`). Drafting
costs nothing while the verifier is busy anyway (`verifier_timeline`). So a verify request leaves just in time to arrive
when the verifier becomes free. In lockstep that is after drafting. While another request is in flight, it is before the
response to that one; on a link with a long round trip, several requests leave in a row. With the time left, the drafter
prepares drafts behind likely recovered tokens, so that after a rejection the next draft is often ready (SpecEdge, arXiv
2505.17052; SSD, arXiv 2603.03251; PEARL, arXiv 2408.11850). Tokens found by lookup cost no time: in the text (`ngram`),
or in the client's prediction of the output (`predicted_output`). They are drafted where they are likelier to be
accepted than the draft model's next token, or so little less that its time is worth more.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import inf

from specpair.speculation.draft import Draft, DraftSource, TreeLimits
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.committed_text import CommittedText
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.node_selection import BRANCH_FLOOR, FLOOR, DraftStep, select_nodes
from specpair.speculation.drafts.tree import Proposal, TreeNode, draft_of
from specpair.speculation.policy.branches import Branches
from specpair.speculation.policy.draft_balance import SURE, DraftBalance
from specpair.speculation.policy.draft_length import MAX_AUTO, DraftLength, DraftPlan, Prospects
from specpair.speculation.policy.rejection_policy import NOT_SOON, RejectionPolicy
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, Schedule
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft, VerifierTimeline

_AHEAD = 6  # most further draft tokens that a plan considers waiting for
_WORTH = 0.01  # expected tokens that a request must gain by leaving before the response to the last one
_TICK = 5e-5  # seconds, the resolution of timers: a moment this close counts as come
# Seconds, and tokens, since the last request: after either, an empty one is due, as acknowledgement.
_REPORT, _REPORT_TOKENS = 0.5, 16
_SHADOW = 8  # committed tokens after which one token is drafted although no draft pays, to measure acceptance
# The same where draft steps and passes take turns on the same cores: the draft model has to read the text first, and a
# token takes about this share of a draft step. Reading may take this share of the verifier's time.
_READS, _SHADOW_SHARE = 0.5, 0.02
_RUNNERS_UP = 5  # choices after the first that a draft step predicts for a tree
# Least chance of a node behind which drafting begins with reading for as long as a pass takes; for less, less.
_READ_CHANCE = 0.5


class SpeculationController:
    """The drafter's decisions for one text, as the module describes."""

    def __init__(
        self,
        tokens: list[int],
        limit: int,
        ends: AbstractSet[int],
        latencies: LatencyModel,
        *,
        max_drafts: int,
        tree_limits: TreeLimits = TreeLimits(),
        width: int = 1,
        length: int | DraftLength | None = None,
        mechanisms: Mechanisms = Mechanisms(),
        next_in: float = 0.0,
        forced: int = 0,
        lookups: Lookups | None = None,
        acceptance: AcceptanceModel | None = None,
        always_send: bool = False,
        now: float = 0.0,
    ) -> None:
        """`tokens`: ids of the committed text, prompt included: the caller's list, to which committed tokens are
            appended.
        `limit`: most tokens of the text, prompt included.
        `ends`: ids of the end tokens.
        `latencies`: running estimates, which the controller updates.
        `max_drafts`: most draft tokens that the verifier judges in one request.
        `tree_limits`: what it takes of a tree.
        `width`: most tree nodes that one draft step can expand.
        `length`: fixed draft length, None for automatic; or what decides it.
        `next_in`: seconds until the first draft, as the prefill request stated.
        `forced`: of the last tokens, those that no pass has read.
        `lookups`: as for `CommittedText`.
        `acceptance`: what earlier texts have taught about draft tokens, which the controller updates; None: nothing.
        `always_send`: every drawn draft token goes into the next verify request, with the distribution it was drawn
            from. Dropping a drawn token for its value would bias the output.

        Raises ValueError for `always_send` outside lockstep.
        """
        if always_send and mechanisms != LOCKSTEP:
            raise ValueError("always_send works in lockstep only: turn overlap and self-continuation off")
        self.text = CommittedText(tokens, ends, lookups, acceptance)
        self.known = self.text.known
        self.finished = False  # its own, as the server and the simulation have no `TextSession` that knows
        self.mechanisms = mechanisms
        self._always_send = always_send
        self._limit, self._width = limit, width
        self._length = length if isinstance(length, DraftLength) else DraftLength(length, max_drafts)
        self._latencies, self._balance = latencies, DraftBalance(latencies)
        self._tree = self.text.tree
        self._timeline = VerifierTimeline(latencies, mechanisms.self_continue, len(self.known), next_in, now)
        self._timeline.news(len(self.known), now, forced)
        self.drafts_in_flight = self._timeline.drafts_in_flight  # the timeline's list, which nothing else changes
        self._step: DraftStep | None = None
        # The answered draft, how many of its tokens were judged, and the seconds of the pass.
        self._answered: tuple[InFlightDraft, int, float] | None = None
        self._sent_at, self._reported = now, len(self.known)
        self._unlearnt = False  # whether anything was committed since the last `reflect`
        self._cached_plan: tuple[float, DraftPlan | None] | None = None
        may_fork = mechanisms.trees and not always_send and self._length.fixed is None
        self._branches = Branches(
            self.text, self._length, latencies, self.drafts_in_flight, width if may_fork else 0, tree_limits
        )
        self._update_prospects()

    @property
    def schedule(self) -> Schedule:
        """The schedule that is expected to be fastest at present."""
        if self.mechanisms.self_continue and not self._length.best:
            return Schedule.SELF_CONTINUED
        return Schedule.OVERLAPPED if self._prospects.overlap else Schedule.LOCKSTEP

    @property
    def forced(self) -> int:
        """Of the last tokens of the text, those that no pass has read."""
        return self._timeline.forced

    # Events.

    def drafted(self, proposals: Sequence[Proposal], read: int, now: float, onward: bool = False) -> float:
        """Take in the proposals of the draft step that ended, one for each node; return the seconds it took.

        `read`: tokens that the draft model read in it.
        `onward`: the executor has begun the next draft step, behind the first proposal (`DraftStep.onward`).
        """
        step, self._step, self._cached_plan = self._step, None, None
        assert step is not None
        took = now - step.began
        if read <= len(step.nodes):
            self._latencies.drafted(len(step.nodes), took)
        else:
            self._latencies.read(read - len(step.nodes), len(step.nodes), took)
        for node, proposal in zip(step.nodes, proposals, strict=True):
            self.text.grow(node, proposal)
        if self._prospects.outpaced:  # its token comes too late to be compared, and only its time could change that
            self.text.untested = 0
        if onward:
            first = proposals[0]
            behind = [child for child in step.nodes[0].children or () if child.token == first.token]
            behind = behind or [TreeNode(first.token, first.confidence, None)]
            step.nodes, step.tails, step.began = behind, [[*step.tails[0], first.token]], now
            self._step = step
        return took

    def answered(
        self,
        in_flight_draft: InFlightDraft,
        judged: int,
        queue: float,
        forward: float,
        now: float,
        shared: tuple[int, int] = (1, 0),
        forced: int = 0,
    ) -> None:
        """Take in a response to a verify request; the caller passes its tokens to `committed` next.

        `judged`: draft tokens that the target model ran over; 0: none.
        `queue`, `forward`: seconds that the request waited for a verifier pass, and that the pass took.
        `shared`: how many sessions shared the pass, and their tokens in it, 0 if those are not known.
        `forced`: forced tokens that it read before the draft tokens.
        """
        waited = in_flight_draft is self.drafts_in_flight[0] and not self._timeline.self_continue
        self._timeline.arrived(in_flight_draft)
        self._cached_plan = None
        self._latencies.exchanged(now - in_flight_draft.sent_at, queue, forward)
        if forward > 0.0:
            self._latencies.verified(judged + forced, forward)
            self._latencies.shared(judged, *shared)
            if not judged:
                self._balance.plain(forward)
            if waited:
                self._latencies.queued(queue)
        self._answered = (in_flight_draft, judged, forward) if len(in_flight_draft.draft) else None

    def self_continued(self, forward: float, forced: int = 0) -> None:
        """Take in a self-continuation step of `forward` seconds, which read `forced` forced tokens before its own; the
        caller passes its token to `committed`."""
        self._cached_plan = None
        self._latencies.verified(forced, forward)
        self._latencies.shared(0)
        self._balance.plain(forward)

    def committed(self, position: int, tokens: Sequence[int], finished: bool, now: float, forced: int = 0) -> list[int]:
        """Take in committed `tokens` from `position` on; return the new ones.

        `finished`: the text has ended.
        `forced`: of the last of `tokens`, those that no pass has read.
        """
        if position > len(self.known):  # a later message brings the tokens in between, and these again
            return []
        new = list(tokens[len(self.known) - position :])
        for at, token in enumerate(new, len(self.known)):
            self._timeline.committed(at, token)
        self.text.commit(new)
        if new or self._answered is not None:
            self._cached_plan = None
            self._timeline.news(len(self.known), now, forced if new else self.forced)
            if self._answered is not None:
                self._expect_next(*self._answered, now)
        self._unlearnt = self._unlearnt or bool(new)
        self._answered = None
        self.finished = self.finished or finished
        return new

    def reflect(self) -> bool:
        """Refit the acceptance model if tokens were committed since the last call; return whether it was refitted.

        A refit can change the decisions, so ask for actions again. Fitting takes longer than deciding, so call this
        when all actions that are due have been started.
        """
        if not self._unlearnt:
            return False
        self._unlearnt, self._cached_plan = False, None
        self.text.learn()
        self._update_prospects()
        return True

    # Actions.

    def next_draft(self, now: float) -> InFlightDraft | None:
        """The verify request to send now; None: there is none to send. A returned one counts as in flight."""
        if self.finished or len(self.drafts_in_flight) >= self.mechanisms.in_flight:
            return None
        if self.drafts_in_flight and not self._prospects.overlap:
            return None
        if self._always_send and self._step is not None:
            return None
        self._look_up(now)
        policy, path = self._prospects.rejection_policy, self._nodes_to_send(now)
        if path is None and self._report_is_due(now):
            path, policy = [], RejectionPolicy(self_continue=True)  # since the time of the next draft is unknown
        if path is None:
            return None
        if not path:
            policy = policy._replace(next_in=NOT_SOON)
            if self._must_be_sure:  # no draft is expected, so there is nothing to wait for
                policy = policy._replace(self_continue=True)
        if not self.mechanisms.self_continue:
            policy = policy._replace(self_continue=None)
        in_flight_draft = InFlightDraft(
            Draft(len(self.known), draft_of(path, self._always_send)),
            now,
            policy,
            idle=self._timeline.idle(now) if self.mechanisms.self_continue else 0.0,
        )
        self._cached_plan = None
        for node in path:
            node.request = in_flight_draft
        self._timeline.sent(in_flight_draft)
        self._sent_at, self._reported = now, len(self.known)
        return in_flight_draft

    def next_step(self, now: float) -> DraftStep | None:
        """The draft step to begin now; None: there is none to begin. A returned one counts as under way."""
        if self._step is not None:
            self._step.until = len(self._step.tails[0]) + self._continues_on_path(now)
            return None
        if self.finished or (self.drafts_in_flight and not self._prospects.overlap):
            return None
        self._look_up(now)
        nodes = self._nodes_to_expand(now)
        if not nodes:
            return None
        tails = [self._tree.tail(node) or [] for node in nodes]
        runners_up = _RUNNERS_UP if self._branches.pay else int(self.mechanisms.after_recovered)
        self._step = DraftStep(nodes, tails, len(self.known), runners_up, now)
        self._cached_plan = None
        self._step.until = len(tails[0]) + self._continues_on_path(now)
        return self._step

    def wake_at(self, now: float) -> float | None:
        """The time (s) at which to ask for actions again if no event comes before; None: only after an event."""
        if self.finished:
            return None
        moments = []
        if self._timeline.self_continue and not self.drafts_in_flight:
            moments.append(self._sent_at + _REPORT)
        elif self._step is not None and self.mechanisms.self_continue and not self.drafts_in_flight:
            moments.append(self._step_late_at())
        if not self._timeline.is_late(now):  # of a late verifier the soonest moment moves along with `now`
            moments.append(self._send_from(now))
        return min((at for at in moments if at > now + _TICK), default=None)

    # Decisions.

    @property
    def _prospects(self) -> Prospects:
        return self._length.prospects

    @property
    def _room(self) -> int:
        """Most draft tokens that the next request may carry."""
        return self._length.room(self._limit - len(self.known))

    @property
    def _must_be_sure(self) -> bool:
        """Whether drafts have brought too little. Without self-continuation, the target alone is no alternative."""
        return self.mechanisms.self_continue and self._balance.in_debt and self._length.fixed is None

    def _update_prospects(self) -> None:
        chances = self._branches.levels([], self.text.chances(ahead=MAX_AUTO + 1), 0)
        self._length.update(self._latencies, chances, self.mechanisms, self.text.ready_share)
        self._branches.update()

    def _expect_next(self, in_flight_draft: InFlightDraft, judged: int, forward: float, now: float) -> None:
        """Tell the timeline when the verifier expects the next draft, and the balance what this one has brought.

        After a fully accepted draft that is at once; after a rejection it is the time stated in the request.
        `judged`: draft tokens of `in_flight_draft` that the target model ran over; 0: none.
        `forward`: seconds of that pass.
        """
        draft = in_flight_draft.draft
        committed = self.known[draft.position : draft.position + len(draft)]
        if judged:
            gained = draft.accepted(committed) - draft.before(committed, judged)
            self._balance.judged(max(0, gained) + 1, forward + in_flight_draft.idle)
        if draft.confirmed(committed):
            self._timeline.expects(0.0 if judged else None, now)
        elif judged:  # else the rejected draft was an earlier one, whose response set this
            self._timeline.expects(in_flight_draft.policy.next_in, now)

    def _report_is_due(self, now: float) -> bool:
        """Whether an empty verify request is due, to acknowledge target-decoded tokens or resume self-continuation."""
        if self.drafts_in_flight or not self.mechanisms.self_continue:
            return False
        if not self._timeline.self_continue:
            return now >= self._step_late_at() - _TICK
        return now - self._sent_at >= _REPORT - _TICK or len(self.known) - self._reported >= _REPORT_TOKENS

    def _plan(self, now: float) -> DraftPlan | None:
        """The best plan for the next verify request; None where no draft pays."""
        if self._cached_plan is None or self._cached_plan[0] != now:
            self._cached_plan = now, self._make_plan(now)
        return self._cached_plan[1]

    def _make_plan(self, now: float) -> DraftPlan | None:
        main, waited_for = self._tree.main(), self._timeline.waits(now)
        made, draft, tip = len(main), self._latencies.draft(), self.text.tip(main)
        # The verifier may write tokens by itself before the draft arrives; only those behind count.
        unreached = max(0, self._skip(now) - made)
        ahead = min(self._deepest(now) - made, unreached + _AHEAD) if self._tree.is_open(tip) else 0
        chances = self.text.chances(main, max(0, ahead))
        if not waited_for and chances[made] < FLOOR:
            ahead = 0
        reading = self._reading(tip)
        first = now + reading + draft
        if self._step is not None:
            over = max(now, self._step_ends())
            first = over if tip in self._step.nodes else over + reading + draft
        # The end of a running pass is uncertain, so a draft token must be done a margin before it to count.
        slack = 0.0 if waited_for else self._latencies.margin
        moments = [now, *(first + slack + number * draft for number in range(ahead))]
        starts = self._timeline.starts(moments, now)
        known = len(self.known)
        return self._length.plan(
            starts,
            self._branches.levels(main, chances, starts[0].position - known),
            made,
            known,
            self._room,
            waited_for,
            self._latencies,
            forced=_forced(main),
            predicted=_predicted(main),
        )

    def _skip(self, now: float) -> int:
        """Tokens behind the known text that are committed before the pass begins for a request that leaves now."""
        return self._timeline.starts([now], now)[0].position - len(self.known)

    def _deepest(self, now: float, most: int | None = None) -> int:
        """Most draft tokens behind the known text that the next request could carry.

        `most`: most draft tokens that the verifier should judge for it; None: as many as of the draft model.
        """
        skip = self._skip(now)
        if most is None:
            most = self._length.cap + (sum(_forced(self._tree.main()[skip:])) if self._length.fixed is None else 0)
        return min(skip + most, self._room)

    def _look_up(self, now: float) -> None:
        """Draft by lookup, which takes no time, where the draft model does not pay, is late, or is likelier wrong."""
        if not self.text.lookups or self._shadow_is_due(now):
            return
        busy = now >= self._step_late_at()
        asked = self._step.nodes if self._step is not None and not (busy or self._prospects.outpaced) else ()
        # In a draft step's time a share of a pass is done, and a pass brings what stands behind the token, too. A fixed
        # number of draft tokens is drafted at any cost.
        worth = self._latencies.draft() / self._latencies.verify(0) if self._length.fixed is None else 0.0
        deepest, always = self._deepest(now, self._length.reach), busy or not self._length.best
        # The draft model comes first where the executor would have begun the next step by itself.
        guess = always or not (self.text.lookups.forces and self._prospects.overlap and self._length.ahead_pays)
        if self.text.look_up(deepest, asked, guess=guess, always=always, worth=worth):
            self._cached_plan = None  # it was made for the shorter path

    def _step_late_at(self) -> float:
        """The time (s) at which the draft step under way is overdue by a verifier pass; infinity if there is no step.

        A draft step is overdue where the draft model has to read a prompt first.
        """
        if self._step is None:
            return inf
        return self._step_ends() + self._latencies.verify(0)

    def _step_ends(self) -> float:
        """The time (s) at which the draft step under way should end."""
        assert self._step is not None
        reading = max(self._reading(node) for node in self._step.nodes)
        return self._step.began + reading + self._latencies.draft(len(self._step.nodes))

    def _send_from(self, now: float) -> float:
        """The time (s) to send a request so that it arrives as the verifier becomes free. Sooner gains nothing."""
        return self._timeline.starts([now], now)[0].at - self._latencies.link / 2 - self._latencies.margin

    def _nodes_to_send(self, now: float) -> list[TreeNode] | None:
        """The draft of a request that should leave now, each node behind its parent; None: no request should."""
        if now < self._send_from(now) - _TICK:
            return None
        plan = self._plan(now)
        if plan is None or plan.more or (self._timeline.waits(now) and self._shadow_is_due(now)):
            return None
        path = self._tree.main()[: max(0, self._room)]
        chances = self.text.chances(path)
        drawn = [bool(node.probs) for node in path] if self._always_send else None
        predicted = _predicted(path)
        count = self._length.to_send(
            self._latencies, chances, plan.skip, drawn, forced=_forced(path), predicted=predicted
        )
        if self._must_be_sure and count > plan.skip and chances[plan.skip + 1] < SURE * chances[plan.skip]:
            count = plan.skip
        if self._length.fixed is None and self.drafts_in_flight:
            likely = chances[min(plan.skip, len(path))]
            if likely * self._latencies.link * self._prospects.rate < _WORTH:
                return None  # waiting for the response loses hardly anything, and shows whether the draft is of use
        if count <= plan.skip and not self._timeline.waits(now):
            return None
        if any(
            in_flight_draft.end >= len(self.known) + count
            for in_flight_draft in self.drafts_in_flight
            if not in_flight_draft.stale
        ):
            return None  # an earlier request carries these tokens already
        if count <= plan.skip:
            return path[:count]
        path = path[:count]
        beside = [] if self._must_be_sure else self._branches.beside(path, chances, plan.skip)
        return path + [each.node for each in beside[: max(0, self._room - count)]]

    def _nodes_to_expand(self, now: float) -> list[TreeNode]:
        """The tree nodes that the next draft step expands, the likeliest first; empty: no draft step pays."""
        if self._timeline.waits(now) or not self._prospects.overlap:
            rests = self.mechanisms.same_cores and not self._length.best and not self._timeline.waits(now)
            plan = None if rests else self._plan(now)
            if plan is not None and plan.more:
                tip = self.text.tip(self._tree.main())
                return self._branches.with_tip(tip, self._ranked(self._deepest(now))) if self._branches.pay else [tip]
        elif self._length.ahead_pays:
            ranked = [each for each in self._ranked(self._deepest(now)) if self._reads_likely(*each)]
            if ranked:
                return select_nodes(ranked, self._latencies.draft, self._width)
            return []
        return [self._tree.root] if self._shadow_is_due(now) else []

    def _reads_likely(self, chance: float, node: TreeNode) -> bool:
        """Whether to draft behind a node that the text passes through with `chance`, for all it reads before.

        Where the text goes another way, nothing else is drafted until it has been read.
        """
        return chance >= _READ_CHANCE * min(1.0, self._reading(node) / self._latencies.verify(0))

    def _reading(self, node: TreeNode) -> float:
        """Seconds that the draft model reads forced tokens before it drafts behind `node`."""
        return self._latencies.reading(node.forced())

    def _continues_on_path(self, now: float) -> bool:
        """Whether the next draft step expands the next node of the path, whatever the current step predicts."""
        if self.finished or self._step is None or not self._prospects.overlap:
            return False
        if self.text.lookups.forces:  # what can follow the step's token in one way only needs no step
            return False
        main = self._tree.main()
        node = self.text.tip(main)
        if node is not self._step.nodes[0] or not self._tree.is_open(node):
            return False
        deepest = self._deepest(now)
        if self._timeline.waits(now):
            plan = self._plan(now)
            if plan is None or plan.more <= 1 or not self._branches.pay:
                return plan is not None and plan.more > 1
        elif not self._length.ahead_pays or len(main) + 1 >= deepest:
            return False
        ranked = self._ranked(deepest)
        chance = next((chance for chance, each in ranked if each is node), 0.0) * self.text.typical
        others = [other for other in ranked if other[1] not in self._step.nodes]
        if self._branches.pay:  # the step brings second choices, too
            others.append((chance / self.text.typical * (1.0 - self.text.typical) * self.text.runner_up, node))
            others.sort(key=lambda pair: pair[0], reverse=True)
        return chance >= FLOOR and len(select_nodes([(chance, node), *others], self._latencies.draft, self._width)) == 1

    def _shadow_is_due(self, now: float) -> bool:
        """Whether to draft one token although no draft pays, to see whether it would be accepted."""
        if self._length.fixed is not None or self._room <= 0 or self._step is not None:
            return False
        if not self._tree.is_open(self._tree.root):
            return False
        draft, verify, patience = self._latencies.draft(), self._latencies.verify(0), float(_SHADOW)
        if self.mechanisms.same_cores and _READS * draft > _SHADOW_SHARE * verify:
            return False
        if self._timeline.waits(now):  # drafting keeps a waiting verifier idle
            patience = max(patience, _SHADOW * draft / (0.16 * verify))
        return self.text.untested >= patience

    def _ranked(self, deepest: int) -> Sequence[tuple[float, TreeNode]]:
        """Open nodes less than `deepest` tokens deep, each with the chance that the text passes through it."""
        beyond_fork = self._length.cap if self.mechanisms.after_recovered or self._branches.pay else 0
        return self.text.expandable_nodes(deepest, beyond_fork, BRANCH_FLOOR if self._branches.pay else FLOOR)


def _forced(path: Sequence[TreeNode]) -> list[bool]:
    """For each draft token of `path`, whether the grammar lets it alone stand there."""
    return [node.source is DraftSource.GRAMMAR for node in path]


def _predicted(path: Sequence[TreeNode]) -> bool:
    """Whether a draft token of `path` is from the client's prediction."""
    return any(node.source is DraftSource.PREDICTION for node in path)
